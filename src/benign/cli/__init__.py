"""The command line: `benign`. main starts it; one module a group of commands.

    main       run, resume, show, audit, papers, pack, merge, schema
    claims     verify, advise
    store      status, check, export
    data, report, live    the commands of these names
    options    options that several commands share
    run, describe    what commands do and print

Imports everything; nothing imports it.
"""
