"""One module per API, with its request and response. `penstock.protocol.apis` finds them by key.

Import only the modules that are needed: importing all of them would slow down the start of every
command.
"""
