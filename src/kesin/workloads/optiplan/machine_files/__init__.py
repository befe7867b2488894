"""Plans as files for machines and other programs: PTX, cut lists and parts lists."""
