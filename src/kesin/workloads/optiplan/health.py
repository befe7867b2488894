"""The health of the workload: its settings can be read, and no order is blocked."""

from pathlib import Path

from kesin.engine.workload import WorkloadContext
from kesin.web.health import HealthCheck
from kesin.workloads.optiplan.errors import OrderProblem
from kesin.workloads.optiplan.pipeline.waiting import blocked_orders, waiting_for
from kesin.workloads.optiplan.workshop.config import Workshop


def check_health(context: WorkloadContext) -> HealthCheck:
    """Check it; not ready without rules and paths. Anybody may read the detail: no paths in it."""
    workshop = Workshop(context.settings)
    try:
        if workshop.rules_file.exists():
            workshop.rules()
        if workshop.paths_file.exists():
            workshop.paths()
    except OrderProblem as problem:
        file = Path(problem.details.get("file", "a settings file")).name
        return HealthCheck(ok=False, detail=f"{file} cannot be used: see `kesin optiplan doctor`")
    blocked = blocked_orders(context.queue)
    if not blocked:
        return HealthCheck(ok=True, detail="no order is blocked")
    awaited = " and ".join(sorted({waits.what for job in blocked if (waits := waiting_for(job))}))
    detail = f"{len(blocked)} wait for {awaited or 'a runner'}: see `kesin optiplan doctor`"
    return HealthCheck(ok=False, detail=detail, needed=False)
