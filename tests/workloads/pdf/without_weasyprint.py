"""WeasyPrint's process on a machine that does not have the library."""

import sys

from kesin.workloads.pdf.engines.weasyprint_child import main

if __name__ == "__main__":
    sys.modules["weasyprint"] = None  # type: ignore[assignment]
    main()
