"""`python -m tests.serve_socket FD`: uvicorn over a listening socket that was handed over.

uvicorn's own `--fd` takes every socket for a Unix one, which leaves TCP_NODELAY off and adds 40 ms
to each response.
"""

import socket
import sys

import uvicorn

from gateway.connections import server_config


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    uvicorn.Server(server_config(access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main()
