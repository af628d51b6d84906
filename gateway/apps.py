from django.apps import AppConfig
from django.db.models.signals import post_migrate


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        from django.apps import apps

        from gateway.auth_roles import ensure_groups

        post_migrate.connect(ensure_groups, sender=apps.get_app_config("auth"))
