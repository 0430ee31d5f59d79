"""The command line: `benign`.

    main          the program: global options, exit codes, errors
    experiments   papers, show, run, resume, audit, schema
    claims        verify, advise
    pages         report, serve
    store         status, export, pack, merge, store check
    data          data
    options       options that several commands share, and the names that shells complete
    run           carries out `benign run` and `resume`, which experiments declares
    describe      papers and experiments as text

Each module of commands has a `typer` app of its own; main joins them. What imports torch is imported inside
functions, so that `--help` and Tab answer at once. Imports everything; nothing imports it.
"""
