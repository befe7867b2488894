# The public names, and where each stands: type checkers read it, and `kesin` itself.
from kesin.engine.bulk import BulkResult as BulkResult
from kesin.engine.new_job import NewJob as NewJob
from kesin.engine.queue import Queue as Queue, StaleClaim as StaleClaim
from kesin.engine.replay import Verification as Verification, verify as verify
from kesin.engine.results import Act as Act, Done as Done, Failed as Failed, RunContext as RunContext, Wait as Wait
from kesin.engine.schedules import Schedule as Schedule
from kesin.engine.sweeper import Sweeper as Sweeper
from kesin.engine.validation import BadInput as BadInput
from kesin.engine.worker import Worker as Worker
from kesin.engine.workload import Workload as Workload, WorkloadContext as WorkloadContext
from kesin.foundation.clock import Clock as Clock, ManualClock as ManualClock
from kesin.foundation.logs import set_up_logs as set_up_logs
from kesin.foundation.permissions import Actor as Actor
from kesin.foundation.problems import (
    Forbidden as Forbidden,
    Invalid as Invalid,
    NotFound as NotFound,
    NotSignedIn as NotSignedIn,
    Problem as Problem,
)
from kesin.foundation.settings import Settings as Settings, load_settings as load_settings
from kesin.foundation.text import canonical_json as canonical_json
from kesin.foundation.version import __version__ as __version__
from kesin.lifecycle import moves as moves
from kesin.lifecycle.budget import Backoff as Backoff, doubling as doubling
from kesin.lifecycle.declare import Lifecycle as Lifecycle, Move as Move, State as State
from kesin.lifecycle.errors import (
    Category as Category,
    Code as Code,
    Rule as Rule,
    Taxonomy as Taxonomy,
    Verdict as Verdict,
    same_everywhere as same_everywhere,
)
from kesin.lifecycle.model import Job as Job
from kesin.lifecycle.proof.rules import Proof as Proof, Unproved as Unproved, prove as prove
from kesin.lifecycle.task import task_lifecycle as task_lifecycle
from kesin.lifecycle.vocabulary import (
    GONE as GONE,
    STAY as STAY,
    After as After,
    DeclarationError as DeclarationError,
    Fixed as Fixed,
    Guard as Guard,
    age_over as age_over,
    budget_left as budget_left,
    budget_spent as budget_spent,
    category_in as category_in,
    code_in as code_in,
    code_not_in as code_not_in,
    due as due,
    flag_not_set as flag_not_set,
    flag_set as flag_set,
    holds_claim as holds_claim,
    lease_over as lease_over,
    option as option,
    parents_done as parents_done,
    parents_failed as parents_failed,
    rate as rate,
    retries_left as retries_left,
    returns_left as returns_left,
    slot_free as slot_free,
    timer_not_over as timer_not_over,
    timer_over as timer_over,
    unclaimed as unclaimed,
    was_claimed as was_claimed,
)
from kesin.store.contract import Store as Store
from kesin.store.errors import (
    StoreError as StoreError,
    StoreTrouble as StoreTrouble,
    StoreUnreachable as StoreUnreachable,
    UnknownQueue as UnknownQueue,
)
from kesin.store.limits import MAX_KEY as MAX_KEY, MAX_TENANT as MAX_TENANT
from kesin.store.open import open_store as open_store
from kesin.store.records import (
    Event as Event,
    Filter as Filter,
    Note as Note,
    Outcome as Outcome,
    Page as Page,
    Progress as Progress,
    QueueStats as QueueStats,
)
from kesin.store.rules import UpgradeRefused as UpgradeRefused
from kesin.web.bodies import LargeBodyRoute as LargeBodyRoute
from kesin.web.dashboard.frame.page import (
    JobAction as JobAction,
    Link as Link,
    PageContext as PageContext,
    Panel as Panel,
    WorkloadPages as WorkloadPages,
    page_context as page_context,
    page_router as page_router,
)
from kesin.workloads.pdf.engines.base import Paper as Paper
from kesin.workloads.pdf.errors import RenderFailed as RenderFailed
from kesin.workloads.pdf.services import (
    create_pdf_engine as create_pdf_engine,
    load_pdf_templates as load_pdf_templates,
)
