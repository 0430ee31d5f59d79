"""The report of folders of results as one HTML file, and the live page of running sweeps.

    page       the report: `bo.write_report`, `benign report`
    folder     a folder of results: notices, facts, the command that makes it again
    claims     verdicts on claims, and the conditions of theorems
    atlas      the figures of a result: quantities, axes, curves
    figures    figures of plotly with their overlays, and texts that explain them
    cells      means, intervals, curves and endings of cells; compressed data
    files/     template, style and script of the report
    live/      the page that follows running sweeps: `benign serve`

Imports everything but the command line. Public: `bo.write_report`.
"""
