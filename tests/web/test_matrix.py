"""Every door of the app against everybody who may knock: who is let in is written down here.

A route without a row fails. So does a row without a route, and anybody without a column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from kesin.foundation.access import ROLES, SCOPES, SITE_SCOPES
from kesin.workloads.optiplan.rules import default_rules, rules_json
from kesin.workloads.pdf.book import SHIPPED
from kesin.workloads.pdf.heartbeat import Heartbeat
from tests.web.client import Client
from tests.web.conftest import CRON_SECRET, MakeWorld, World, by_cookie, error_of, opened
from tests.workloads.optiplan.orders_ready import CUSTOMER, held_order, new_order, planned_order

NO_JOB = "00000000-0000-7000-8000-000000000000"
DAY_S = 86_400
OWN, OTHER = "north", "south"

# Columns
#   nobody  without anything, or with a session that has ended
#   dead    a key that is revoked, over or made up
#   cron    the cron secret
#   metr    a key for metrics           pdf    a key for pdf      trade  a key for optiplan
#   i.…     a key of a producer of conversions, s.… of a script
#   v.…     who may read: viewers, and keys for `read`
#   o.…     who may operate: operators, and keys for `operate`
#           .no  no site   .que  the queue pdf alone   .oth  another site
#           .own the site of the row   .all  every site
#   admin   admins, whatever their sites, and keys for `admin`
#
# Rows: a method and a path as the app declares it, and what exactly is asked (see House.ask).
TABLE = """
                                                           nobody dead cron metr pdf  trade | i.own i.oth s.own s.oth | v.no v.que v.oth v.own v.all | o.no o.que o.oth o.own o.all | admin
GET    /openapi.json                               -       200    200  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
HEAD   /openapi.json                               -       200    200  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /static                                     file    200    200  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /static                                     above   404    404  404  404  404  404   | 404   404   404   404   | 404  404   404   404   404   | 404  404   404   404   404   | 404
GET    /docs                                       -       200    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /health/live                                -       200    200  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /health/ready                               -       200    200  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /metrics                                    -       401    401  403  200  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /api/cron/sweep                             -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
POST   /api/session                                wrong   401    401  401  401  401  401   | 401   401   401   401   | 401  401   401   401   401   | 401  401   401   401   401   | 401
GET    /api/session                                -       401    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
DELETE /api/session                                key     401    401  401  401  401  401   | 401   401   401   401   | 401  401   401   401   401   | 401  401   401   401   401   | 401
DELETE /api/session                                cookie  401    -    -    -    -    -     | -     -     -     -     | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /                                           -       303    401  303  303  303  303   | 303   303   303   303   | 303  303   303   303   303   | 303  303   303   303   303   | 303
GET    /sign-in                                    -       200    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
POST   /sign-in                                    wrong   401    401  401  401  401  401   | 401   401   401   401   | 401  401   401   401   401   | 401  401   401   401   401   | 401
POST   /sign-out                                   -       303    401  303  303  303  303   | 303   303   303   303   | 303  303   303   303   303   | 303  303   303   303   303   | 303
GET    /dashboard                                  -       303    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /dashboard/nav                              -       303    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
POST   /dashboard/look                             -       303    401  303  303  303  303   | 303   303   303   303   | 303  303   303   303   303   | 303  303   303   303   303   | 303
GET    /dashboard/queues/{queue}                   task    303    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /dashboard/queues/{queue}                   own     303    401  403  403  403  403   | 403   403   403   403   | 404  404   403   200   200   | 404  404   403   200   200   | 200
GET    /dashboard/queues/{queue}                   pdf     303    401  403  403  403  403   | 403   403   403   403   | 404  200   404   404   200   | 404  200   404   404   200   | 200
GET    /dashboard/queues/{queue}                   none    303    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
GET    /dashboard/queues/{queue}/rows              task    303    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /dashboard/queues/{queue}/rows              own     303    401  403  403  403  403   | 403   403   403   403   | 404  404   403   200   200   | 404  404   403   200   200   | 200
GET    /dashboard/queues/{queue}/rows.csv          task    303    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /dashboard/queues/{queue}/rows.csv          own     303    401  403  403  403  403   | 403   403   403   403   | 404  404   403   200   200   | 404  404   403   200   200   | 200
GET    /dashboard/queues/{queue}/runs              task    303    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /dashboard/queues/{queue}/steer             task    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   200   200   200   | 200
POST   /dashboard/queues/{queue}/sheet             task    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   200   200   200   | 200
POST   /dashboard/queues/{queue}/sheet             own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   200   200   | 200
POST   /dashboard/queues/{queue}/sheet             pdf     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  200   404   404   200   | 200
POST   /dashboard/queues/{queue}/sheet             none    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   404   | 404
POST   /dashboard/queues/{queue}/act               task    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   303   303   303   | 303
POST   /dashboard/queues/{queue}/act               own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   303   303   | 303
POST   /dashboard/queues/{queue}/act               pdf     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  303   404   404   303   | 303
POST   /dashboard/queues/{queue}/act               none    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   404   | 404
POST   /dashboard/queues/{queue}/pause             task    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   403   303   | 303
POST   /dashboard/queues/{queue}/pause             own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   303   303   | 303
POST   /dashboard/queues/{queue}/resume            task    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   403   303   | 303
POST   /dashboard/queues/{queue}/resume            own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   303   303   | 303
GET    /dashboard/jobs/{job_id}                    own     303    401  403  403  403  403   | 403   403   403   403   | 404  404   404   200   200   | 404  404   404   200   200   | 200
GET    /dashboard/jobs/{job_id}                    pdf     303    401  403  403  403  403   | 403   403   403   403   | 404  200   404   404   200   | 404  200   404   404   200   | 200
GET    /dashboard/jobs/{job_id}                    none    303    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
POST   /dashboard/jobs/{job_id}/unmask             own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /dashboard/jobs/{job_id}/paper              pdf     303    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /dashboard/workers                          -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 200  200   200   200   200   | 200
GET    /dashboard/audit                            -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /dashboard/admin/people                     -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/admin/people                     -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 422
GET    /dashboard/admin/people/{name}              -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /dashboard/admin/people/{name}              -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /dashboard/admin/keys                       -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/admin/keys                       -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 422
GET    /dashboard/admin/keys/{key_id}              -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /dashboard/admin/keys/{key_id}              -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /dashboard/admin/sites                      -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/admin/sites                      -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 422
GET    /dashboard/admin/sites/{site_id}            -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /dashboard/admin/sites/{site_id}            -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /dashboard/site/{site_id}/oci-control       own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   200   200   | 403  403   403   200   200   | 200
GET    /dashboard/site/{site_id}/oci-control       none    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   404   | 403  403   403   403   404   | 404
GET    /dashboard/site/{site_id}/oci-control/export own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   200   200   | 403  403   403   200   200   | 200
GET    /dashboard/site/{site_id}/oci-control/settings own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
GET    /dashboard/site/{site_id}/oci-control/settings none    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   404   | 404
GET    /dashboard/site/{site_id}/oci-control/pause own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /dashboard/site/{site_id}/oci-control/preview own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /dashboard/site/{site_id}/oci-control/actions own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /dashboard/site/{site_id}/oci-control/actions none    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   404   | 404
POST   /dashboard/site/{site_id}/oci-control/pause own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   303   303   | 303
POST   /dashboard/site/{site_id}/oci-control/dismiss own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   303   303   | 303
POST   /dashboard/site/{site_id}/oci-control/fixes own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /dashboard/site/{site_id}/oci-control/check own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /dashboard/site/{site_id}/oci-control/settings own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 303
POST   /dashboard/site/{site_id}/oci-control/credentials own     303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 422
GET    /dashboard/pdf                              -       303    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/pdf/form                         new     303    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/pdf/preview                      new     303    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /dashboard/pdf/preview/{token}              none    303    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /dashboard/pdf/jobs                         new     303    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/pdf/jobs/{job_id}/cancel         none    303    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /dashboard/optiplan                         -       303    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /dashboard/optiplan/new                     -       303    401  403  403  403  200   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/optiplan/new/rows                -       303    401  403  403  403  200   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /dashboard/optiplan/new                     -       303    401  403  403  403  422   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 422
POST   /dashboard/optiplan/import                  -       303    401  403  403  403  400   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 400
GET    /dashboard/optiplan/orders/{job_id}/{call}  order   303    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   403   | 404  404   404   404   200   | 200
POST   /dashboard/optiplan/orders/{job_id}/{call}  held    303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   200   | 200
GET    /dashboard/optiplan/customers               -       303    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
POST   /dashboard/optiplan/customers               -       303    401  403  403  403  303   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   303   | 303
POST   /dashboard/optiplan/customers/remove        -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   303   | 303
GET    /dashboard/optiplan/rules                   -       303    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
POST   /dashboard/optiplan/rules                   -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   303   | 303
POST   /dashboard/optiplan/rules/form              -       303    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   422   | 422
GET    /dashboard/{rest:path}                      -       303    401  404  404  404  404   | 404   404   404   404   | 404  404   404   404   404   | 404  404   404   404   404   | 404
GET    /api/sites                                  -       401    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /api/queues                                 -       401    401  403  403  403  403   | 403   403   403   403   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /api/queues/{queue}/stats                   task    401    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /api/queues/{queue}/stats                   own     401    401  403  403  403  403   | 403   403   403   403   | 404  404   403   200   200   | 404  404   403   200   200   | 200
GET    /api/queues/{queue}/stats                   pdf     401    401  403  403  403  403   | 403   403   403   403   | 404  200   404   404   200   | 404  200   404   404   200   | 200
GET    /api/queues/{queue}/stats                   none    401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
GET    /api/queues/{queue}/jobs                    task    401    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /api/queues/{queue}/jobs                    own     401    401  403  403  403  403   | 403   403   403   403   | 404  404   403   200   200   | 404  404   403   200   200   | 200
GET    /api/queues/{queue}/jobs                    pdf     401    401  403  403  403  403   | 403   403   403   403   | 404  200   404   404   200   | 404  200   404   404   200   | 200
GET    /api/queues/{queue}/jobs                    none    401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
POST   /api/queues/{queue}/jobs                    task    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 201
POST   /api/queues/{queue}/jobs                    none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /api/queues/{queue}/lifecycle               task    401    401  403  403  403  403   | 403   403   403   403   | 404  404   200   200   200   | 404  404   200   200   200   | 200
GET    /api/queues/{queue}/lifecycle               pdf     401    401  403  403  403  403   | 403   403   403   403   | 404  200   404   404   200   | 404  200   404   404   200   | 200
GET    /api/queues/{queue}/lifecycle               none    401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
GET    /api/jobs/{job_id}                          own     401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   200   200   | 404  404   404   200   200   | 200
GET    /api/jobs/{job_id}                          pdf     401    401  403  403  403  403   | 403   403   403   403   | 404  200   404   404   200   | 404  200   404   404   200   | 200
GET    /api/jobs/{job_id}                          none    401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
POST   /api/queues/{queue}/actions                 id      401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   200   200   200   | 200
POST   /api/queues/{queue}/actions                 dry     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   200   200   200   | 200
POST   /api/queues/{queue}/actions                 own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   200   200   | 200
POST   /api/queues/{queue}/actions                 pdf     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  200   404   404   200   | 200
POST   /api/queues/{queue}/actions                 none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   404   | 404
POST   /api/queues/{queue}/pause                   task    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   403   200   | 200
POST   /api/queues/{queue}/pause                   own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   200   200   | 200
POST   /api/queues/{queue}/pause                   pdf     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  200   404   404   200   | 200
POST   /api/queues/{queue}/pause                   none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   404   | 404
POST   /api/queues/{queue}/resume                  task    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   403   200   | 200
POST   /api/queues/{queue}/resume                  own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   403   200   200   | 200
POST   /api/queues/{queue}/resume                  pdf     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  200   404   404   200   | 200
POST   /api/queues/{queue}/resume                  none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   404   | 404
GET    /api/queues/{queue}/events                  task    401    401  403  403  403  403   | 403   403   403   403   | 404  404   503   503   503   | 404  404   503   503   503   | 503
GET    /api/queues/{queue}/events                  pdf     401    401  403  403  403  403   | 403   403   403   403   | 404  503   404   404   503   | 404  503   404   404   503   | 503
GET    /api/queues/{queue}/events                  none    401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
POST   /api/oci/conversions                        own     401    401  403  403  403  403   | 200   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /api/oci/conversions                        none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /api/oci/google-ads-export                  key     401    401  403  403  403  403   | 403   403   200   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /api/oci/google-ads-export                  cookie  401    -    -    -    -    -     | -     -     -     -     | 403  403   403   403   403   | 403  403   403   403   403   | 403
GET    /api/oci/google-ads-export                  own     401    401  403  403  403  403   | 403   403   200   403   | 403  403   403   200   200   | 403  403   403   200   200   | 200
GET    /api/oci/google-ads-export                  none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   404   | 403  403   403   403   404   | 404
POST   /api/oci/ack                                own     401    401  403  403  403  403   | 403   403   200   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /api/oci/ack                                none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /api/oci/ack-failed                         own     401    401  403  403  403  403   | 403   403   200   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /api/oci/ack-failed                         none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /api/oci/script-heartbeat                   own     401    401  403  403  403  403   | 403   403   200   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /api/oci/script-heartbeat                   none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /api/oci/v2/verify                          key     401    401  403  403  403  403   | 403   403   200   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /api/oci/v2/verify                          cookie  401    -    -    -    -    -     | -     -     -     -     | 403  403   403   403   403   | 403  403   403   403   403   | 403
GET    /api/oci/queue-stats                        own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   200   200   | 403  403   403   200   200   | 200
GET    /api/oci/queue-stats                        none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   404   | 403  403   403   403   404   | 404
GET    /api/oci/queue-rows                         own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   200   200   | 403  403   403   200   200   | 200
GET    /api/oci/queue-rows                         none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   404   | 403  403   403   403   404   | 404
GET    /api/oci/dead-letter.csv                    own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   200   200   | 403  403   403   200   200   | 200
GET    /api/oci/dead-letter.csv                    none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   404   | 403  403   403   403   404   | 404
GET    /api/oci/queue-stats                        multi   401    401  403  403  403  403   | 403   403   403   403   | 200  200   200   200   200   | 200  200   200   200   200   | 200
POST   /api/oci/queue-actions                      own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /api/oci/queue-actions                      mend    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /api/oci/queue-actions                      none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   404   | 404
PUT    /api/oci/credentials                        own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
PUT    /api/oci/credentials                        none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
DELETE /api/oci/credentials                        own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
DELETE /api/oci/credentials                        none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /api/oci/credentials/check                  own     401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   200   200   | 200
POST   /api/oci/credentials/check                  none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   404   | 404
GET    /api/oci/codes/{code}                       -       401    401  200  200  200  200   | 200   200   200   200   | 200  200   200   200   200   | 200  200   200   200   200   | 200
GET    /api/cron/oci/recover-processing            -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
POST   /api/cron/oci/recover-processing            -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
GET    /api/cron/oci/attempt-cap                   -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
POST   /api/cron/oci/attempt-cap                   -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
GET    /api/cron/oci/process-offline-conversions   -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
POST   /api/cron/oci/process-offline-conversions   -       403    403  200  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 403
GET    /pdf/webhooks                               -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /pdf/webhooks/{webhook_id}/resend           none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /pdf/jobs                                   new     401    401  403  403  202  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
GET    /pdf/jobs                                   -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/jobs/{job_id}                          mine    401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/jobs/{job_id}                          other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/jobs/{job_id}                          none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /pdf/jobs/{job_id}/download                 mine    401    401  403  403  202  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
GET    /pdf/jobs/{job_id}/download                 other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
GET    /pdf/jobs/{job_id}/download                 none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
HEAD   /pdf/jobs/{job_id}/download                 mine    401    401  403  403  202  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
HEAD   /pdf/jobs/{job_id}/download                 other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
HEAD   /pdf/jobs/{job_id}/download                 none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
DELETE /pdf/jobs/{job_id}                          mine    401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
DELETE /pdf/jobs/{job_id}                          other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
DELETE /pdf/jobs/{job_id}                          none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /pdf/batches                                new     401    401  403  403  202  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
GET    /pdf/batches                                -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/batches/{batch_id}                     mine    401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/batches/{batch_id}                     other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/batches/{batch_id}                     none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /pdf/batches/{batch_id}/download            mine    401    401  403  403  202  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
GET    /pdf/batches/{batch_id}/download            other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
GET    /pdf/batches/{batch_id}/download            none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
HEAD   /pdf/batches/{batch_id}/download            mine    401    401  403  403  202  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
HEAD   /pdf/batches/{batch_id}/download            other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 202
HEAD   /pdf/batches/{batch_id}/download            none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
DELETE /pdf/batches/{batch_id}                     mine    401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
DELETE /pdf/batches/{batch_id}                     other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
DELETE /pdf/batches/{batch_id}                     none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /pdf/templates                              -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/templates/{name}                       -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
GET    /pdf/templates/{name}                       none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
POST   /pdf/templates/{name}/preview               -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /pdf/templates/{name}/preview               none    401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 404
GET    /pdf/webhooks/secret                        -       401    401  403  403  200  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 200
POST   /pdf/webhooks/{webhook_id}/resend           other   401    401  403  403  404  403   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 409
POST   /jobs                                       new     401    401  403  403  403  201   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 201
POST   /orders/{order_id}/import/xlsx              new     401    401  403  403  403  201   | 403   403   403   403   | 403  403   403   403   403   | 403  403   403   403   403   | 201
GET    /jobs                                       -       401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /jobs/{job_id}                              order   401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /jobs/{job_id}                              none    401    401  403  403  403  404   | 403   403   403   403   | 404  404   404   404   404   | 404  404   404   404   404   | 404
GET    /jobs/{job_id}/xml                          order   401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /jobs/{job_id}/import-files                 order   401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /jobs/{job_id}/plan.svg                     order   401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /jobs/{job_id}/plan.pdf                     order   401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
POST   /jobs/{job_id}/approve                      held    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   200   | 200
POST   /jobs/{job_id}/retry                        order   401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   409   | 409
POST   /jobs/{job_id}/reissue                      order   401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   409   | 409
POST   /jobs/{job_id}/cancel                       held    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   200   | 200
POST   /jobs/{job_id}/cancel                       none    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   404   | 404
GET    /customers/lookup                           -       401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
GET    /customers                                  -       401    401  403  403  403  200   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
POST   /customers                                  new     401    401  403  403  403  200   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   200   | 200
GET    /config/rules                               -       401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
PUT    /config/rules                               same    401    401  403  403  403  403   | 403   403   403   403   | 403  403   403   403   403   | 404  404   404   404   200   | 200
GET    /config/paths                               -       401    401  403  403  403  403   | 403   403   403   403   | 404  404   404   404   200   | 404  404   404   404   200   | 200
"""  # noqa: E501  # a table is read across; events: whoever is let in meets a service that stops


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    path: str
    asked: str
    expected: dict[str, str] = field(hash=False)

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.asked}"

    @property
    def ends_sessions(self) -> bool:
        return self.method == "DELETE" or self.path == "/sign-out"


def _rows() -> list[Row]:
    head, *lines = TABLE.strip().splitlines()
    columns = head.replace("|", "").split()
    rows = []
    for line in lines:
        method, path, asked, *statuses = line.replace("|", "").split()
        rows.append(Row(method, path, asked, dict(zip(columns, statuses, strict=True))))
    return rows


ROWS = _rows()
BY_QUEUE = {
    "task": ("task", {}),
    "own": ("task", {"site": OWN}),
    "pdf": ("pdf", {}),
    "none": ("nope", {}),
}

CREDENTIALS = {
    "credentials": {
        "customer_id": "1234567890",
        "client_id": "client",
        "client_secret": "secret",
        "refresh_token": "token",
        "conversion_action_resource_name": "customers/1234567890/conversionActions/1",
    }
}


TRADES = ("/dashboard/site/", "/dashboard/pdf", "/dashboard/optiplan")
INVOICE = json.loads((SHIPPED / "invoice" / "sample.json").read_text("utf-8"))
HOOKS = {
    "pdf_webhooks": r"https://hooks\.example\.com/.*",
    "pdf_webhook_secret": "a secret of the tests",
}


def _of_trades(row: Row) -> bool:
    return row.path.startswith(TRADES)


class House:
    """A world with a row of each kind and everybody who may knock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.client
        world.service.live.stop()  # a watch would go on for ever
        self.jobs = {
            "own": world.job(OWN),
            "other": world.job(OTHER),
            "pdf": world.job("somebody", queue="pdf"),
            "none": NO_JOB,
            "order": planned_order(world.service),
        }
        self.actors = _actors(world)
        Heartbeat(world.store, "one", now=world.service.queues["pdf"].now).beat()
        self._known: dict[str, dict[str, str]] = {}

    def ask(self, row: Row, actor: str) -> int:
        """Send what the row says as this actor; the status."""
        path, sent = self._of_a_trade(row) if _of_trades(row) else self._asked(row, actor)
        headers = self._headers(actor, anew=row.ends_sessions)
        if row.path in {"/sign-in", "/sign-out", "/dashboard/look"}:
            headers |= {"sec-fetch-site": "same-origin"}
        return self.client.request(row.method, path, headers=headers, **sent).status_code

    def _asked(self, row: Row, actor: str) -> tuple[str, dict[str, Any]]:
        """Where it is asked, and what is sent there."""
        path: str = row.path
        sent: dict[str, Any] = {}
        if row.path.startswith("/api/queues/{queue}/"):
            path, sent = self._of_queue(row)
        elif row.path.startswith("/dashboard/queues/{queue}"):
            path, sent = self._of_queue_page(row)
        elif row.path.startswith("/api/oci/"):
            path, sent = path.replace("{code}", "EXPIRED"), self._of_oci(row, actor)
        elif row.path.startswith("/pdf/"):
            path, sent = self._of_pdf(row, self._headers(actor, anew=False))
        elif row.path.startswith(("/jobs", "/orders", "/customers", "/config")):
            path, sent = self._of_optiplan(row)
        elif row.path.startswith(("/api/jobs/{job_id}", "/dashboard/jobs/{job_id}")):
            path = row.path.replace("{job_id}", self.jobs[row.asked])
        elif row.path == "/static":
            path = "/static/docs.js" if row.asked == "file" else "/static/..%2f..%2fapp.py"
        elif row.asked == "wrong":
            wrong = {"name": "somebody", "password": "not the password"}
            sent = {"json": wrong} if row.path.startswith("/api") else {"data": wrong}
        return path, sent

    def _headers(self, actor: str, *, anew: bool) -> dict[str, str]:
        if anew:
            return self.actors[actor][1]()
        if actor not in self._known:
            self._known[actor] = self.actors[actor][1]()
        return dict(self._known[actor])

    def _of_queue(self, row: Row) -> tuple[str, dict[str, Any]]:
        what = row.path.rpartition("/")[2]
        queue, site = BY_QUEUE.get(row.asked, ("task", {}))
        path = row.path.replace("{queue}", queue)
        if row.method == "GET":
            return path, {"params": site}
        if what == "actions":
            chosen: dict[str, Any] = {"action": "cancel", "filter": {"sites": [OWN]}}
            if row.asked != "own":
                chosen = {"action": "cancel", "ids": [NO_JOB], "dry_run": row.asked == "dry"}
            return path, {"json": chosen}
        if what == "jobs":
            return path, {"json": {"jobs": [{"payload": {}, "site": OWN}]}}
        return path, {"json": site}

    def _of_queue_page(self, row: Row) -> tuple[str, dict[str, Any]]:
        queue, site = BY_QUEUE[row.asked]
        path = row.path.replace("{queue}", queue)
        if row.method == "GET":
            return path, {"params": site}
        if row.path.endswith(("pause", "resume")):
            return path, {"data": site}
        chosen = {"all": "1", **site} if row.asked == "own" else {"ids": NO_JOB}
        return path, {"data": {"call": "cancel", **chosen}}

    def _of_pdf(self, row: Row, headers: dict[str, str]) -> tuple[str, dict[str, Any]]:
        """Something of the asker's own, of somebody else, or of nobody."""
        kind = "batches" if "batch" in row.path else "webhooks" if "hook" in row.path else "jobs"
        asked: dict[str, Any] = {"template_name": "invoice", "variables": INVOICE}
        if kind == "batches":
            asked = {"template_name": "invoice", "rows": [INVOICE]}
        if row.path.startswith("/pdf/templates"):
            name = "nothing" if row.asked == "none" else "invoice"
            sent = {"json": {"variables": INVOICE}} if row.method == "POST" else {}
            return row.path.replace("{name}", name), sent
        if row.asked == "new":
            return row.path, {"json": asked}
        mine = NO_JOB
        if row.asked == "mine":
            new = self.client.post(f"/pdf/{kind}", json=asked, headers=headers)
            mine = new.headers.get("location", NO_JOB).rpartition("/")[2]
        elif row.asked == "other":
            queue = {"jobs": "pdf", "batches": "pdf_batches", "webhooks": "pdf_webhooks"}[kind]
            mine = self.world.job("somebody", queue=queue)
        for name in ("{job_id}", "{batch_id}", "{webhook_id}"):
            row_path = row.path.replace(name, mine)
            if row_path != row.path:
                return row_path, {}
        return row.path, {}

    def _of_optiplan(self, row: Row) -> tuple[str, dict[str, Any]]:
        """One order for all to look at, a held one for each who acts, or none."""
        order = new_order()
        path = row.path.replace("{order_id}", order["order_id"])
        if row.asked == "held":
            path = path.replace("{job_id}", held_order(self.world.service))
        bodies = {
            "new": CUSTOMER if row.path == "/customers" else order,
            "same": rules_json(default_rules()),
        }
        sent: dict[str, Any] = {"json": bodies[row.asked]} if row.asked in bodies else {}
        if row.path == "/customers/lookup":
            sent = {"params": {"phone": CUSTOMER["phone"]}}
        return path.replace("{job_id}", self.jobs.get(row.asked, "")), sent

    def _of_a_trade(self, row: Row) -> tuple[str, dict[str, Any]]:
        """The trades' own pages: forms and files that would do."""
        site = "nowhere" if row.asked == "none" else OWN
        job = (
            held_order(self.world.service) if row.asked == "held" else self.jobs.get(row.asked, "")
        )
        named = {"site_id": site, "token": "nothing", "job_id": job, "call": "approve"}
        paged = {**INVOICE, "number": "asked for on the page"}
        invoice = {"template": "invoice", "source": json.dumps(paged), "do": "json"}
        forms: dict[str, Any] = {
            "preview": {"action": "RETRY_SELECTED", "ids": NO_JOB},
            "actions": {"action": "RETRY_SELECTED", "ids": NO_JOB},
            "rows": {"do": "add"},
            "customers": {**CUSTOMER, "phone": "0555 000 00 99"},
            "remove": {"phone": "0555 000 00 99"},
            "rules": {"source": json.dumps(rules_json(default_rules()))},
        }
        what = row.path.rpartition("/")[2]
        sent: dict[str, Any] = {}
        if what in {"fixes", "import"}:
            sent = {"files": {"file": ("list.csv", "externalId,gclid\nnone,x\n", "text/csv")}}
        elif row.method == "POST":
            sent = {"data": invoice if row.asked == "new" else forms.get(what, {})}
        return row.path.format(**named), sent

    def _of_oci(self, row: Row, actor: str) -> dict[str, Any]:
        what = row.path.removeprefix("/api/oci/")
        site = {"siteId": "nowhere" if row.asked == "none" else OWN}
        if row.method == "GET":
            claim = {"markAsExported": "true"}
            extra = {"key": claim, "cookie": claim, "multi": {"scope": "multi"}}
            return {"params": site | extra.get(row.asked, {})}
        if what == "conversions":
            return {"params": site, "json": []}
        if what == "credentials/check":
            return {"params": site}
        if row.method == "DELETE":
            if self.actors[actor][0] == "admin":  # each finds something to drop
                boss = self.world.key("admin")
                self.client.put(row.path, headers=boss, json={"siteId": OWN, **CREDENTIALS})
            return {"params": site}
        bodies: dict[str, dict[str, Any]] = {
            "ack": {"queueIds": []},
            "ack-failed": {"queueIds": []},
            "credentials": CREDENTIALS,
            "queue-actions": {"action": "RETRY_SELECTED", "ids": [NO_JOB]},
        }
        body = site | bodies.get(what, {})
        return {"json": body | {"action": "ENQUEUE_FIX"} if row.asked == "mend" else body}


Actors = dict[str, tuple[str, Callable[[], dict[str, str]]]]


def _actors(world: World) -> Actors:
    """Name → the column and what makes the headers."""
    actors: Actors = {
        "nobody": ("nobody", dict),
        "made-up session": ("nobody", lambda: by_cookie("x" * 43)),
        "made-up key": ("dead", lambda: {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}),
        "cron": ("cron", lambda: {"authorization": f"Bearer {CRON_SECRET}"}),
        "wrong cron": ("dead", lambda: {"authorization": f"Bearer {CRON_SECRET}x"}),
    }
    _ended(world, actors)
    _people(world, actors)
    _keys(world, actors)
    return actors


def _ended(world: World, actors: Actors) -> None:
    over = world.key("admin", days=1)
    world.person("gone", "admin")
    old = world.token("gone")
    world.clock.advance(2 * DAY_S)
    actors["expired key"] = ("dead", lambda: dict(over))
    actors["expired session"] = ("nobody", lambda: by_cookie(old))
    revoked = world.raw_key("admin")
    world.revoke(revoked)
    actors["revoked key"] = ("dead", lambda: {"x-api-key": revoked})
    ended = world.token("gone")
    world.accounts.sign_out(world.accounts.session_actor(ended, "") or pytest.fail("gone"), ended)
    actors["ended session"] = ("nobody", lambda: by_cookie(ended))


def _people(world: World, actors: Actors) -> None:
    may: dict[str, dict[str, Any]] = {
        "no": {},
        "que": {"queues": ["pdf"]},
        "oth": {"sites": [OTHER]},
        "own": {"sites": [OWN]},
        "all": {"all_sites": True},
    }
    for role in ROLES:
        for where, rights in may.items():
            name = world.person(f"{role}-{where}", role, **rights)
            column = "admin" if role == "admin" else f"{role[0]}.{where}"
            actors[name] = (column, lambda name=name: world.cookie(name))  # type: ignore[misc]


def _keys(world: World, actors: Actors) -> None:
    columns = {
        "oci:ingest": "i",
        "oci:script": "s",
        "metrics": "metr",
        "pdf": "pdf",
        "read": "v",
        "operate": "o",
        "admin": "admin",
    }
    for scope in SCOPES:
        for where, site in {"own": OWN, "oth": OTHER, "all": None}.items():
            if site is None and scope in SITE_SCOPES:
                continue
            column = columns.get(scope, "trade")
            column += f".{where}" if column in {"i", "s", "v", "o"} else ""
            key = world.key(scope, site=site)
            actors[f"key {scope} {where}"] = (column, lambda key=key: dict(key))  # type: ignore[misc]


@pytest.fixture(scope="module")
def house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _quick_hashes: None
) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("matrix")
    with ExitStack() as stack:
        keys = "first:" + "A" * 43
        world = World(opened("sqlite", folder, request, stack), folder, secret_keys=keys, **HOOKS)
        world.site(OWN, OTHER)
        stack.enter_context(world.kept())
        yield House(world)


def doors(app: FastAPI) -> set[tuple[str, str]]:
    """Every method and path the app answers, however deep it was included."""
    found: set[tuple[str, str]] = set()

    def look(routes: Any, prefix: str) -> None:
        for one in routes:
            inner = getattr(one, "original_router", None)
            if inner is not None:
                look(inner.routes, prefix + one.include_context.prefix)
            elif isinstance(one, Route | APIRoute):
                found.update((method, prefix + one.path) for method in one.methods or ())
            elif isinstance(one, Mount):
                found.add(("GET", prefix + one.path))
            else:
                pytest.fail(f"an unknown kind of route: {one!r}")

    look(app.routes, "")
    return found


def test_every_door_of_the_app_is_in_the_table(world):
    missing = doors(world.app) - {(row.method, row.path) for row in ROWS}
    assert not missing, f"decide who may use {sorted(missing)}: give each a row in TABLE"


def test_every_row_of_the_table_is_a_door(world):
    assert {(row.method, row.path) for row in ROWS} <= doors(world.app)


def test_a_new_door_would_be_noticed(world):
    @world.app.get("/api/back-door")
    def back_door() -> None: ...

    assert ("GET", "/api/back-door") in doors(world.app)


def test_what_the_schema_tells_are_the_doors_found(world):
    told = {
        (method.upper(), path)
        for path, methods in world.app.openapi()["paths"].items()
        for method in methods
    }
    assert told <= doors(world.app)


def test_everybody_has_a_column_and_every_column_somebody(house):
    assert {column for column, _ in house.actors.values()} == set(ROWS[0].expected)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_who_is_let_in(row: Row, house: House, request: pytest.FixtureRequest):
    concerned: dict[str, list[str]] = {}
    for actor, (column, _) in house.actors.items():
        if _concerns(row, actor, column):
            concerned.setdefault(column, []).append(actor)
    if not request.config.getoption("--long"):  # one of each column, at each door another one
        turn = ROWS.index(row)
        concerned = {column: [those[turn % len(those)]] for column, those in concerned.items()}
    expected = {
        actor: int(row.expected[column]) for column, those in concerned.items() for actor in those
    }
    assert expected
    assert {actor: house.ask(row, actor) for actor in expected} == expected


def _concerns(row: Row, actor: str, column: str) -> bool:
    """All rows concern everybody, but a few: some doors differ by what was shown."""
    if row.asked == "cookie":
        return row.expected[column] != "-" and not actor.startswith("key ")
    if row.asked == "key":
        return actor.startswith("key ") or column in {"nobody", "dead", "cron"}
    return True


# Rows of others


CANARY = "canary-of-the-south"


@pytest.fixture
def two_sites(either_world: World) -> World:
    """North and south, each with a job of every kind; the south's are full of canaries."""
    world = either_world
    for name in ("oci", "task"):
        world.job(OWN, queue=name, key="of-the-north")
        for n in range(3):
            world.job(OTHER, queue=name, key=f"{CANARY}-{n}", payload={"secret": CANARY})
    failed = world.job(OTHER, key=f"{CANARY}-failed")
    world.task.act("cancel", actor=CANARY, ids=[failed], reason=CANARY)
    world.job(CANARY, queue="pdf", key=CANARY)
    world.task.pause(actor=CANARY, tenant=OTHER, reason=CANARY)
    world.person("nur", "operator", sites=[OWN])
    return world


def asked_by_the_north(client: Client, headers: dict[str, str]) -> Iterator[Any]:
    """Every answer with rows in it that somebody of the north can get."""
    for path in ("/api/queues", "/api/sites", "/api/session", "/sign-in"):
        yield client.get(path, headers=headers)
    for queue in ("oci", "task", "pdf", "optiplan"):
        for what in ("stats", "jobs", "lifecycle", f"stats?site={OTHER}", f"jobs?site={OTHER}"):
            yield client.get(f"/api/queues/{queue}/{what}", headers=headers)
        for text in ("text", "key"):
            yield client.get(
                f"/api/queues/{queue}/jobs", params={text: f"{CANARY}-0"}, headers=headers
            )
        for sent in ({"filter": {}, "dry_run": True}, {"filter": {"sites": [OTHER]}}):
            act = {"action": "cancel", **sent}
            yield client.post(f"/api/queues/{queue}/actions", json=act, headers=headers)
        for what in ("pause", "resume"):
            for site in ({"site": OTHER}, {}):
                yield client.post(f"/api/queues/{queue}/{what}", json=site, headers=headers)
    yield from asked_of_oci(client, headers)


def asked_of_oci(client: Client, headers: dict[str, str]) -> Iterator[Any]:
    """The same of the doors for conversions."""
    yield client.get("/api/oci/queue-stats?scope=multi", headers=headers)
    for site in (OWN, OTHER):
        for what in ("queue-stats", "queue-rows", "dead-letter.csv", "google-ads-export"):
            yield client.get(f"/api/oci/{what}?siteId={site}", headers=headers)
        search = {"siteId": site, "q": f"{CANARY}-0"}
        yield client.get("/api/oci/queue-rows", params=search, headers=headers)
        act = {"siteId": site, "action": "MARK_FAILED", "filter": {}}
        yield client.post("/api/oci/queue-actions", json=act, headers=headers)


def test_rows_of_other_sites_appear_in_no_answer(two_sites):
    foreign = {job.id for queue in two_sites.service.queues.values() for job in queue.jobs().jobs}
    foreign -= {job.id for job in two_sites.task.jobs().jobs if job.tenant == OWN}
    foreign -= {job.id for job in two_sites.service.queues["oci"].jobs().jobs if job.tenant == OWN}
    assert len(foreign) == 8
    for answer in asked_by_the_north(two_sites.client, two_sites.cookie("nur")):
        asked = f"{answer.request.method} {answer.request.url}"
        assert answer.status_code in {200, 403, 404, 422}, asked
        seen = answer.text.replace(f"{CANARY}-0", "") if "error" in answer.text else answer.text
        assert CANARY not in seen, asked
        assert not [one for one in foreign if one in answer.text], asked
        assert OTHER not in answer.text, asked


def test_rows_of_other_sites_are_not_counted(two_sites):
    headers = two_sites.cookie("nur")
    stats = two_sites.client.get("/api/queues/task/stats", headers=headers).json()
    assert stats["total"] == 1
    assert stats["states"] == {"ready": 1, "running": 0, "done": 0, "failed": 0}
    assert stats["sites"] == {OWN: stats["states"]}
    assert (stats["oldest_due_at"], stats["lease_over"]) == (None, 0)


def test_a_dry_run_over_everything_counts_only_ones_own(two_sites):
    asked = {"action": "cancel", "filter": {}, "dry_run": True}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert (answer["matched"], answer["by_state"]) == (1, {"ready": 1})


def test_a_dry_run_over_another_sites_job_counts_none(two_sites):
    [job] = two_sites.task.jobs(limit=1).jobs
    assert job.tenant == OTHER
    asked = {"action": "requeue", "ids": [job.id], "dry_run": True}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert (answer["matched"], answer["moved"], answer["by_state"]) == (0, 0, {})


def test_an_action_on_another_sites_job_finds_it_unknown_and_changes_nothing(two_sites):
    foreign = two_sites.job(OTHER)
    before = two_sites.found(foreign)
    asked = {"action": "cancel", "ids": [foreign, NO_JOB]}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    there, nowhere = answer["outcomes"]
    assert there == {**nowhere, "id": foreign}
    assert there["result"] == "unknown"
    assert two_sites.found(foreign) == before
    assert [event.move for event in two_sites.task.events(foreign)] == ["enqueue"]
    assert two_sites.task.notes(foreign) == []


def test_an_action_over_everything_moves_only_ones_own(two_sites):
    asked = {"action": "cancel", "filter": {}}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert (answer["matched"], answer["moved"]) == (1, 1)
    tenants = two_sites.task.stats().tenants
    assert tenants[OTHER]["ready"] == 3


def test_an_action_on_a_job_of_another_queue_finds_it_unknown(two_sites):
    job = two_sites.job(OWN, queue="oci")
    asked = {"action": "cancel", "ids": [job]}
    answer = two_sites.client.post(
        "/api/queues/task/actions", json=asked, headers=two_sites.cookie("nur")
    ).json()
    assert answer["outcomes"][0]["result"] == "unknown"
    assert two_sites.state(job) == "QUEUED"


@pytest.mark.parametrize("method", ["GET stats", "GET jobs", "POST actions", "POST pause"])
def test_a_foreign_site_and_one_that_is_not_there_are_refused_alike(method, world):
    world.person("nur", "operator", sites=[OWN])
    headers = world.cookie("nur")
    verb, what = method.split()

    def ask(site: str) -> Any:
        path = f"/api/queues/task/{what}"
        if verb == "GET":
            return world.client.get(path, params={"site": site}, headers=headers)
        acting = {"action": "cancel", "filter": {"sites": [site]}}
        sent = acting if what == "actions" else {"site": site}
        return world.client.post(path, json=sent, headers=headers)

    foreign, missing = ask(OTHER), ask("nowhere")
    assert foreign.status_code == missing.status_code == 403
    assert foreign.content == missing.content


def test_a_foreign_job_and_one_that_is_not_there_are_told_alike(world):
    world.person("nur", "operator", sites=[OWN])
    headers = world.cookie("nur")
    foreign = world.job(OTHER)
    one = world.client.get(f"/api/jobs/{foreign}", headers=headers)
    other = world.client.get(f"/api/jobs/{NO_JOB}", headers=headers)
    assert one.status_code == other.status_code == 404
    assert one.text.replace(foreign, NO_JOB) == other.text


def test_a_hidden_queue_and_one_that_is_not_there_are_told_alike(world):
    world.person("nur", "operator", sites=[OWN])
    headers = world.cookie("nur")
    hidden = world.client.get("/api/queues/pdf/stats", headers=headers)
    missing = world.client.get("/api/queues/nope/stats", headers=headers)
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("pdf", "nope") == missing.text


def test_a_person_with_queues_sees_no_other_queue(world):
    world.person("nur", "operator", all_sites=True, queues=["task"])
    answer = world.client.get("/api/queues", headers=world.cookie("nur"))
    assert [one["name"] for one in answer.json()] == ["task"]


def test_a_person_knows_only_their_sites(world):
    world.person("nur", sites=[OWN])
    answer = world.client.get("/api/sites", headers=world.cookie("nur"))
    assert [one["id"] for one in answer.json()] == [OWN]


@pytest.mark.parametrize("scope", ["pdf", "optiplan", "metrics"])
def test_a_key_that_is_not_about_sites_knows_none(scope, world):
    answer = world.client.get("/api/sites", headers=world.key(scope))
    assert (answer.status_code, answer.json()) == (200, [])


def test_without_a_cron_secret_nobody_is_the_cron_caller(make_world: MakeWorld):
    world = make_world(cron_secret=None)
    for headers in ({}, {"authorization": "Bearer "}, {"authorization": f"Bearer {CRON_SECRET}"}):
        answer = world.client.post("/api/cron/sweep", headers=headers)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "forbidden")


def test_the_cron_caller_is_told_when_there_is_no_such_queue(world):
    headers = {"authorization": f"Bearer {CRON_SECRET}"}
    answer = world.client.post("/api/cron/sweep?queue=nope", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "not_found")


def test_a_key_is_taken_as_a_bearer_too(world):
    headers = {"authorization": f"Bearer {world.raw_key('read')}"}
    assert world.client.get("/api/queues", headers=headers).status_code == 200


def test_a_wrong_key_is_refused_even_beside_a_good_session(world):
    world.person("nur", "admin")
    headers = world.cookie("nur") | {"x-api-key": f"kesin_abcdefgh_{'x' * 43}"}
    answer = world.client.get("/api/session", headers=headers)
    assert (answer.status_code, error_of(answer)["code"]) == (401, "wrong_key")


def test_a_key_whose_secret_is_another_ones_is_refused(world):
    one, other = world.raw_key("admin"), world.raw_key("admin")
    mixed = one[:15] + other[15:]
    assert world.client.get("/api/session", headers={"x-api-key": mixed}).status_code == 401
    assert world.client.get("/api/session", headers={"x-api-key": one}).status_code == 200
