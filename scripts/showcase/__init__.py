"""The parts of the gallery: how its pictures were made, verdicts, badges, and pages."""
