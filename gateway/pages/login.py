"""The login page: Django's, with a limit on failures."""

from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse

from gateway.clock import SystemClock
from gateway.pages.login_limits import Try

clock = SystemClock()


class Login(LoginView):
    """Refuses to look at a password after too many failures; never redirects to another host."""

    template_name = "login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wait_seconds = self._this_try().wait_seconds()
        if not wait_seconds:
            return super().post(request, *args, **kwargs)
        form = AuthenticationForm(request)
        context = self.get_context_data(form=form, wait_minutes=-(-wait_seconds // 60))
        response = self.render_to_response(context, status=429)
        response["Retry-After"] = str(wait_seconds)
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        self._this_try().failed()
        return super().form_invalid(form)

    def _this_try(self) -> Try:
        return Try(
            username=self.request.POST.get("username", ""),
            address=self.request.META.get("REMOTE_ADDR", ""),
            at_us=clock.now_us(),
        )
