"""Work that outgrows one process, on Ray: corpora translated by many workers."""
