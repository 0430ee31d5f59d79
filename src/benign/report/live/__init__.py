"""The live page: the figures of the report, updated while sweeps run (`benign serve`).

    serve      the server: address, port, who may connect
    pages      the pages: the list of sweeps, and the page of each sweep
    monitor    the state of all sweeps below a folder, read again when files change; its texts
    drawing    what a reader has selected; reading and drawing one sweep

Imports what report/ may import, and nicegui. Writes nothing to the folder. Public: the command.
"""
