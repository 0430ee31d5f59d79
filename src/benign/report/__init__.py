"""The report of a folder of results as one HTML file, and the live page of running sweeps.

    page       the report: `bo.write_report`, `benign report`
    folder, atlas, figures, cells, claims, theorem    what it shows
    files/     template, style, script
    live/      the page that follows sweeps: `benign serve`

Imports everything above it but the command line.
"""
