"""The warm process: runs the commands of one user on local graphs, without their start.

``omnigraph warm start`` starts it. From then on a command that it can run only connects to its
socket, hands over its arguments, environment and streams, and waits for the exit code. The command
opens the files that its arguments name; the process reads what it is given. Anything else, and
every doubt, is decided before the command has begun: then it runs in its own process, as always.

``client`` is all that such a command imports: it uses only modules that the interpreter has at its
start. ``process`` accepts connections, ``request`` runs one command, ``admission`` decides which.
Linux only: elsewhere the credentials of the other side cannot be asked for.
"""
