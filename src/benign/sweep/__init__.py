"""Running a plan and keeping its results: records, a store of records, packs that carry a store."""
