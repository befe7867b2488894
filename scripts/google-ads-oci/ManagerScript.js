/**
 * Kesin: offline conversions to Google Ads, by one script of a manager account.
 *
 * Each run requests the sites that were served least recently from a Kesin server, at most 50. In
 * the account of each site, it does the work of GoogleAdsScript.js. How to install it:
 * docs/oci-sites.md#fifty-sites.
 *
 * It has the same guarantees as GoogleAdsScript.js. In addition,
 * - if an account fails, or if Google ends its run, the others continue and come first in the next
 *   run;
 * - the log contains the result of each account.
 *
 * This file is written by scripts/make-reference.py from GoogleAdsScript.js and manager-part.js.
 */
'use strict';

const CONFIG = {
  baseUrl: '', // https://kesin.example.com
  apiKey: '', // a key for all sites with the oci:script scope
  reconcile: '', // 'yes' sends Google's own figures once a day; untested with Google
};

// Empty settings above are read from the script properties with these names.
const PROPERTIES = {
  baseUrl: 'KESIN_BASE_URL',
  apiKey: 'KESIN_API_KEY',
  reconcile: 'KESIN_RECONCILE',
};
const OPTIONAL = ['reconcile'];

const VERSION = '1.3.0';
const PAGE_ROWS = 1000; // the maximum of an export
const ACK_IDS = 1000; // in one call
const MOST_PAGES = 1000; // prevents an endless loop
const BUDGET_MS = 25 * 60 * 1000; // for new pages: Google ends a script after 30 minutes
const LAST_MS = 29 * 60 * 1000; // no pause lasts longer
const TRIES = 5;
const FIRST_DELAY_MS = 1500; // doubled after each attempt
const JITTER_MS = 500;
const LONGEST_PAUSE_MS = 4 * 60 * 1000; // a longer one is left to the next run
const MESSAGE_CHARS = 500;
const LISTED_AT = 'KESIN_ACTIONS_LISTED_AT'; // the script property with the time of the last list
const LIST_EVERY_MS = 24 * 60 * 60 * 1000;
const MOST_ACTIONS = 500;
const ACTIONS_QUERY =
  'SELECT conversion_action.id, conversion_action.name, conversion_action.status, ' +
  'conversion_action.counting_type, conversion_action.click_through_lookback_window_days ' +
  "FROM conversion_action WHERE conversion_action.type = 'UPLOAD_CLICKS' " +
  `ORDER BY conversion_action.name LIMIT ${MOST_ACTIONS}`;

const RECONCILED_AT = 'KESIN_RECONCILED_AT'; // the time of Google's last figures
const MOST_COUNTS = 4000; // of uploads and of conversions: a hundred actions and 31 days
const ATTRIBUTED_DAYS = 30;
const SUMMARY = 'offline_conversion_upload_conversion_action_summary';
const UPLOADS_QUERY =
  `SELECT ${SUMMARY}.client, ${SUMMARY}.conversion_action_id, ` +
  `${SUMMARY}.conversion_action_name, ${SUMMARY}.daily_summaries FROM ${SUMMARY}`;
const ATTRIBUTED_QUERY =
  'SELECT segments.date, segments.conversion_action, segments.conversion_action_name, ' +
  'metrics.all_conversions_by_conversion_date FROM customer WHERE segments.date BETWEEN ';

const COLUMNS = [
  'Order ID', 'Google Click ID', 'WBRAID', 'GBRAID',
  'Conversion name', 'Conversion time', 'Conversion value', 'Conversion currency',
];

// Added if rows have these fields, which a site setting turns on; untested with Google.
const MORE_COLUMNS = {
  adUserData: 'Ad User Data',
  adPersonalization: 'Ad Personalization',
  hashedEmail: 'Email',
  hashedPhone: 'Phone Number',
};
const CONSENTS = { granted: 'Granted', denied: 'Denied' };

// One message for each code, so that all rows with a code can be reported in one call.
const FAULTS = {
  MISSING_CLICK_ID: 'gclid, wbraid and gbraid are missing',
  INVALID_CLICK_ID_FORMAT: 'Expected 6 to 512 letters, digits, _ or - as click id',
  MISSING_TIME: 'conversionTime is missing',
  INVALID_TIME_FORMAT: 'Expected yyyy-mm-dd HH:mm:ss±HH:mm, a real date and time',
  INVALID_CONVERSION_VALUE: 'Expected a number of 0 or more as conversionValue',
};

const CLICK_ID = /^[A-Za-z0-9_-]{6,512}$/;
const TIME = /^(\d{4})-(\d{2})-(\d{2}) (\d{2}):(\d{2}):(\d{2})([+-])(\d{2}):?(\d{2})$/;
const DECIMAL = /^\d+(\.\d+)?$/;
const LOCAL = /^http:\/\/(127\.0\.0\.1|localhost)(:\d+)?$/;

const MOST_ACCOUNTS = 50; // Google's limit for a run

function main() {
  const settings = readSettings();
  const starts = AdsApp.getExecutionInfo().isPreview() ? '' : '?starts=true';
  const path = `/api/oci/manager/sites${starts}`; // an account whose run Google ended comes last
  const sites = new QuantumClient(settings, Date.now()).send('get', path).body;
  if (!Array.isArray(sites)) {
    throw new Error('The response is not a list of sites; is baseUrl a Kesin server?');
  }
  const sitesOf = {}; // by account
  sites.forEach(({ siteId, customerId }) => {
    const account = customerId.replace(/^(\d{3})(\d{3})(\d{4})$/, '$1-$2-$3');
    sitesOf[account] = (sitesOf[account] || []).concat(siteId);
  });
  const asked = Object.keys(sitesOf);
  const select = () => AdsManagerApp.accounts().withIds(asked).withLimit(MOST_ACCOUNTS);
  const there = new Set();
  if (asked.length > 0) {
    const accounts = select().get();
    while (accounts.hasNext()) {
      there.add(accounts.next().getCustomerId());
    }
  }
  asked.filter((account) => !there.has(account)).forEach((account) => {
    const reason = `There is no account ${account} under this manager account`;
    sitesOf[account].forEach((siteId) => reportTrouble(settings, siteId, reason));
  });
  if (there.size === 0) {
    Logger.log('No account to serve.');
    return;
  }
  select().executeInParallel('serveAccount', 'allServed', JSON.stringify(sitesOf));
}

/** Runs in each account. If an account has several sites, each is served even if others fail. */
function serveAccount(input) {
  const startedMs = Date.now();
  const settings = readSettings();
  const siteIds = JSON.parse(input)[AdsApp.currentAccount().getCustomerId()] || [];
  const troubles = [];
  siteIds.forEach((siteId) => {
    try {
      serveSite(Object.assign({ siteId }, settings), startedMs);
    } catch (error) {
      const reason = messageOf(error).slice(0, MESSAGE_CHARS);
      troubles.push(`${siteId}: ${reason}`);
      reportTrouble(settings, siteId, reason);
    }
  });
  if (troubles.length > 0) {
    throw new Error(troubles.join('; '));
  }
  return siteIds.join(', ');
}

/** Report to Kesin why a site was not served. */
function reportTrouble(settings, siteId, reason) {
  Logger.log(`${siteId}: ${reason}`);
  if (AdsApp.getExecutionInfo().isPreview()) {
    return;
  }
  const body = { siteId, scriptVersion: VERSION, error: reason };
  try {
    new QuantumClient(settings, Date.now()).send('post', '/api/oci/script-heartbeat', body);
  } catch (error) {
    Logger.log(`No heartbeat for ${siteId}: ${error.message}`);
  }
}

/** Runs after all accounts. */
function allServed(results) {
  let failures = 0;
  results.forEach((result) => {
    const account = result.getCustomerId();
    const status = result.getStatus();
    if (status === 'OK') {
      Logger.log(`${account}: served ${result.getReturnValue()}`);
    } else {
      failures += 1;
      Logger.log(`${account}: ${status} ${result.getError() || ''}`);
    }
  });
  Logger.log(`${results.length} accounts, ${failures} of them failed.`);
  if (failures > 0) {
    // Ends the run in an error, which Google shows in the script's history and mails.
    throw new Error(`${failures} of ${results.length} accounts failed; the log says why`);
  }
}

/** Process one site. */
function serveSite(settings, startedMs) {
  const client = new QuantumClient(settings, startedMs);
  client.handshake();
  if (AdsApp.getExecutionInfo().isPreview()) {
    showPreview(client);
    return;
  }
  const run = uploadAll(client, new UploadEngine(), startedMs);
  client.heartbeat(run);
  listActions(client);
  sendFigures(client);
  const counts = `${run.exported} claimed, ${run.acked} uploaded, ${run.failed} failed`;
  const refused = run.refused > 0 ? ` Kesin refused the report on ${run.refused} of them.` : '';
  Logger.log(`Done: ${counts}.${refused}`);
  if (run.uploadFailed || run.unreported > 0) {
    // Ends the run in an error, which Google shows in the script's history and mails.
    throw new Error(
      run.uploadFailed
        ? 'Google Ads did not accept the upload; its rows were reported and will be retried'
        : `${run.unreported} rows could not be reported; Kesin recovers them automatically`,
    );
  }
}

/**
 * Send the account's conversion actions once a day: rows can use the enabled ones. An error does
 * not fail the run; the next run tries again.
 */
function listActions(client) {
  const stored = scriptProperties();
  if (!stored || Date.now() - Number(stored.getProperty(`${LISTED_AT}_${client.siteId}`) || 0) < LIST_EVERY_MS) {
    return;
  }
  try {
    const actions = [];
    const found = AdsApp.search(ACTIONS_QUERY);
    while (found.hasNext() && actions.length < MOST_ACTIONS) {
      const action = found.next().conversionAction;
      actions.push({
        name: String(action.name),
        id: String(action.id),
        status: String(action.status),
        counting: String(action.countingType || 'MANY_PER_CLICK'),
        lookbackDays: Number(action.clickThroughLookbackWindowDays || 30),
      });
    }
    const { added = [], changed = [], gone = [] } = client.sendActions(actions);
    stored.setProperty(`${LISTED_AT}_${client.siteId}`, String(Date.now()));
    const counts = `${added.length} new, ${changed.length} changed, ${gone.length} not enabled`;
    Logger.log(`Conversion actions sent: ${actions.length} (${counts}).`);
  } catch (error) {
    Logger.log(`Conversion actions not sent: ${client.hide(messageOf(error))}`);
  }
}

/**
 * Send Google's counts of uploads and conversions once a day, if the option is set: these queries
 * are untested in a script. An error does not fail the run; the next run tries again.
 */
function sendFigures(client) {
  const stored = scriptProperties();
  const last = stored && Number(stored.getProperty(`${RECONCILED_AT}_${client.siteId}`) || 0);
  if (client.reconcile !== 'yes' || !stored || Date.now() - last < LIST_EVERY_MS) {
    return;
  }
  try {
    const uploads = [];
    const names = new Set();
    eachRow(UPLOADS_QUERY, (row) => {
      const summary = row.offlineConversionUploadConversionActionSummary;
      const action = String(summary.conversionActionName);
      names.add(action);
      (summary.dailySummaries || []).forEach((day) => uploads.push({
        action,
        client: String(summary.client),
        day: String(day.uploadDate),
        successful: Number(day.successfulCount || 0),
        failed: Number(day.failedCount || 0),
        pending: Number(day.pendingCount || 0),
      }));
    });
    const zone = AdsApp.currentAccount().getTimeZone();
    const dayAgo = (days) =>
      Utilities.formatDate(new Date(Date.now() - days * LIST_EVERY_MS), zone, 'yyyy-MM-dd');
    const attributed = [];
    eachRow(`${ATTRIBUTED_QUERY}'${dayAgo(ATTRIBUTED_DAYS)}' AND '${dayAgo(0)}'`, (row) => {
      const action = String(row.segments.conversionActionName);
      if (names.has(action)) { // skips actions that accept no uploads
        const conversions = Math.max(0, Number(row.metrics.allConversionsByConversionDate || 0));
        attributed.push({ action, day: String(row.segments.date), conversions });
      }
    });
    const cut = uploads.splice(MOST_COUNTS).length + attributed.splice(MOST_COUNTS).length;
    client.sendFigures(zone, uploads, attributed);
    stored.setProperty(`${RECONCILED_AT}_${client.siteId}`, String(Date.now()));
    const counts = `${uploads.length} of uploads, ${attributed.length} of conversions`;
    Logger.log(`Google's figures sent: ${counts}${cut ? `, ${cut} left out` : ''}.`);
  } catch (error) {
    Logger.log(`Google's figures not sent: ${client.hide(messageOf(error))}`);
  }
}

function eachRow(query, use) {
  const found = AdsApp.search(query);
  while (found.hasNext()) {
    use(found.next());
  }
}

/** Process pages until no row waits, time is up, or an upload fails. */
function uploadAll(client, engine, startedMs) {
  const run = {
    exported: 0, acked: 0, failed: 0, refused: 0, unreported: 0, uploadFailed: false,
  };
  for (let page = 0; page < MOST_PAGES; page += 1) {
    if (Date.now() - startedMs >= BUDGET_MS) {
      Logger.log('Time is up; the next run continues.');
      break;
    }
    const rows = client.export();
    if (rows.length === 0) {
      break;
    }
    run.exported += rows.length;
    const result = engine.process(rows);
    report(client, result, run);
    run.uploadFailed = result.uploadFailed;
    if (run.uploadFailed || run.unreported > 0) {
      break; // further claims would fail in the same way
    }
  }
  return run;
}

/** Report a page to the server. If a call fails, the others are still sent. */
function report(client, result, run) {
  const deliver = (what, count, kind, send) => {
    try {
      run.refused += send();
      run[kind] += count;
    } catch (error) {
      run.unreported += count;
      Logger.log(
        `${what} NOT DELIVERED for ${error.undelivered} of ${count} rows: ${error.message}. ` +
          'Kesin will recover them and send them again under the same Order ID.',
      );
    }
  };
  const uploaded = result.successIds;
  if (uploaded.length > 0) {
    deliver('ACK', uploaded.length, 'acked', () => client.sendAck(uploaded));
  }
  groupFailures(result.failedRows).forEach((group) => {
    const { queueIds, errorCode, errorMessage, errorCategory } = group;
    Logger.log(`${queueIds.length} rows failed: ${errorCode} (${errorCategory})`);
    const send = () => client.sendAckFailed(queueIds, errorCode, errorMessage, errorCategory);
    deliver('ACK-FAILED', queueIds.length, 'failed', send);
  });
}

/** One group for each code and category, with the message of its first row. */
function groupFailures(failedRows) {
  const groups = new Map();
  failedRows.forEach((row) => {
    const name = `${row.errorCode}|${row.errorCategory}`;
    if (!groups.has(name)) {
      groups.set(name, Object.assign({ queueIds: [] }, row));
    }
    groups.get(name).queueIds.push(row.queueId);
  });
  return Array.from(groups.values());
}

/** Show what a run would send, without claiming, uploading or reporting. */
function showPreview(client) {
  const preview = client.preview();
  const engine = new UploadEngine();
  const counts = new Map(); // number of equal lines
  const tell = (line) => counts.set(line, (counts.get(line) || 0) + 1);
  (preview.items || []).forEach((row) => {
    const code = engine.faultOf(row);
    if (code) {
      tell(`${code}: ${FAULTS[code]}`);
    }
  });
  (preview.warnings || []).forEach((warning) => {
    tell(client.hide(warning.code ? `${warning.code}: ${warning.message}` : warning));
  });
  const { queued = 0, skipped = 0, atLeast = false } = preview.counts;
  const number = atLeast ? `at least ${queued}` : queued;
  Logger.log(`Preview: ${number} rows would be sent, ${skipped} would be skipped.`);
  counts.forEach((times, line) => Logger.log(`Preview: ${times} × ${line}`));
  Logger.log('Preview: nothing was claimed, uploaded or acknowledged.');
}

function scriptProperties() {
  return typeof PropertiesService === 'undefined' ? null : PropertiesService.getScriptProperties();
}

function readSettings() {
  const stored = scriptProperties();
  const settings = {};
  const missing = [];
  Object.keys(PROPERTIES).forEach((name) => {
    const found = CONFIG[name] || (stored && stored.getProperty(PROPERTIES[name])) || '';
    settings[name] = String(found).trim();
    if (!settings[name] && !OPTIONAL.includes(name)) {
      missing.push(`${name} (or the script property ${PROPERTIES[name]})`);
    }
  });
  if (missing.length > 0) {
    throw new Error(`Fill in at the top of the script: ${missing.join(', ')}`);
  }
  settings.baseUrl = settings.baseUrl.replace(/\/+$/, '');
  if (!/^https:\/\/[^/]/.test(settings.baseUrl) && !LOCAL.test(settings.baseUrl)) {
    throw new Error('baseUrl must begin with https://, because every request contains the key');
  }
  return settings;
}

/** The client of Kesin: a method for each call; calls are repeated if that can help. */
class QuantumClient {
  constructor(settings, startedMs) {
    this.endsMs = startedMs + LAST_MS;
    this.baseUrl = settings.baseUrl;
    this.siteId = settings.siteId;
    this.apiKey = settings.apiKey;
    this.reconcile = settings.reconcile;
    this.token = null;
  }

  /** Get a token for a few minutes; without one, each request contains the key. */
  handshake() {
    this.token = null;
    try {
      const answer = this.send('post', '/api/oci/v2/verify', { siteId: this.siteId }).body;
      this.token = (answer && (answer.sessionToken || answer.session_token)) || null;
    } catch (error) {
      Logger.log(`No session token, continuing with the key: ${error.message}`);
    }
    return this.token !== null;
  }

  /** Claim the next page: this run must report these rows. */
  export() {
    const answer = this.send('get', `${this.exportPath()}&markAsExported=true&limit=${PAGE_ROWS}`);
    if (!Array.isArray(answer.body)) {
      throw new Error('The export is not a list; is baseUrl a Kesin server?');
    }
    if (answer.headers['x-kesin-paused']) {
      Logger.log('The site or the queue is paused in Kesin.');
    }
    return answer.body;
  }

  /** Preview the next page; changes nothing. */
  preview() {
    const found = this.send('get', `${this.exportPath()}&markAsExported=false`).body;
    if (!found || !found.counts) {
      throw new Error('The preview has no counts; is baseUrl a Kesin server?');
    }
    return found;
  }

  exportPath() {
    return `/api/oci/google-ads-export?siteId=${encodeURIComponent(this.siteId)}`;
  }

  /** Report uploaded rows. Returns how many reports were refused. */
  sendAck(queueIds) {
    return this.sendIds('/api/oci/ack', queueIds, {});
  }

  /** Report failed rows with the reason. Returns how many reports were refused. */
  sendAckFailed(queueIds, errorCode, errorMessage, errorCategory) {
    return this.sendIds('/api/oci/ack-failed', queueIds, { errorCode, errorMessage, errorCategory });
  }

  /** Send the account's conversion actions; returns the changes in Kesin. */
  sendActions(actions) {
    const body = { siteId: this.siteId, actions };
    return this.send('post', '/api/oci/actions', body).body || {};
  }

  /** Send Google's counts of uploads and conversions, by day in the account's time zone. */
  sendFigures(zone, uploads, attributed) {
    this.send('post', '/api/oci/reconciliation', { siteId: this.siteId, zone, uploads, attributed });
  }

  /** Report the version and the counts of this run. An error does not fail the run. */
  heartbeat(run) {
    const { exported, acked, failed } = run;
    const body = { siteId: this.siteId, scriptVersion: VERSION, exported, acked, failed };
    try {
      this.send('post', '/api/oci/script-heartbeat', body);
    } catch (error) {
      Logger.log(`No heartbeat: ${error.message}`);
    }
  }

  /** Send every part, even if others fail; then throw the first error. */
  sendIds(path, queueIds, more) {
    let failure = null;
    let undelivered = 0;
    let refusals = 0;
    for (let from = 0; from < queueIds.length; from += ACK_IDS) {
      const part = queueIds.slice(from, from + ACK_IDS);
      try {
        const body = Object.assign({ siteId: this.siteId, queueIds: part }, more);
        const answer = this.send('post', path, body).body;
        if (!answer || answer.ok !== true) {
          throw new Error(`The response to POST ${path} is not from Kesin`);
        }
        const refused = answer.refused || [];
        refusals += refused.length;
        if (refused.length > 0) {
          const reasons = new Set(refused.map((one) => String(one.reason)));
          Logger.log(`${path}: ${refused.length} rows refused: ${Array.from(reasons).join(', ')}`);
        }
      } catch (error) {
        failure = failure || error;
        undelivered += part.length;
      }
    }
    if (failure) {
      failure.undelivered = undelivered;
      throw failure;
    }
    return refusals;
  }

  /** One call, repeated after 429, 5xx or no response; an expired token is renewed once. */
  send(method, path, body) {
    let mayRenew = this.token !== null;
    let delayMs = FIRST_DELAY_MS;
    let tries = 0;
    for (;;) {
      const answer = this.fetchOnce(method, path, body);
      if (answer.status >= 200 && answer.status < 300) {
        return answer;
      }
      if (answer.status === 401 && mayRenew) {
        mayRenew = false;
        this.handshake();
        continue;
      }
      tries += 1;
      const passing = answer.status === 0 || answer.status === 429 || answer.status >= 500;
      const askedMs = retryAfterMs(answer.headers['retry-after']);
      const pauseMs = Math.max(delayMs, askedMs) + Math.floor(Math.random() * JITTER_MS);
      const late = askedMs > LONGEST_PAUSE_MS || Date.now() + pauseMs > this.endsMs;
      if (!passing || tries >= TRIES || late) {
        throw new Error(this.describe(method, path, answer));
      }
      Utilities.sleep(pauseMs);
      delayMs *= 2;
    }
  }

  /** Send once. Never throws: without a response, the status is 0. */
  fetchOnce(method, path, body) {
    const key = { 'x-api-key': this.apiKey };
    const options = {
      method,
      headers: this.token ? { Authorization: `Bearer ${this.token}` } : key,
      muteHttpExceptions: true,
      followRedirects: false, // the key is for this server only
    };
    if (body !== undefined) {
      options.contentType = 'application/json';
      options.payload = JSON.stringify(body);
    }
    let response;
    try {
      response = UrlFetchApp.fetch(this.baseUrl + path, options);
    } catch (error) {
      return { status: 0, headers: {}, body: null, reason: messageOf(error) };
    }
    const headers = {};
    const given = response.getAllHeaders();
    Object.keys(given).forEach((name) => {
      headers[name.toLowerCase()] = given[name];
    });
    return { status: response.getResponseCode(), headers, body: readJson(response), reason: '' };
  }

  /** A description of a refusal, without secrets. */
  describe(method, path, answer) {
    const problem = (answer.body && answer.body.error) || {};
    const why = answer.reason || [problem.code, problem.message].filter(Boolean).join(': ');
    const what = answer.status === 0 ? 'no response' : `HTTP ${answer.status}`;
    const line = `${method.toUpperCase()} ${path.split('?')[0]} ${what}${why ? ` (${why})` : ''}`;
    return this.hide(line).slice(0, MESSAGE_CHARS);
  }

  hide(text) {
    return [this.apiKey, this.token]
      .filter(Boolean)
      .reduce((left, secret) => left.split(secret).join('***'), String(text));
  }
}

/** Turns rows into one upload, and separates the rows that cannot be sent. */
class UploadEngine {
  /**
   * Upload a page. `successIds` may be acknowledged; `failedRows` must be reported. If the upload
   * itself fails, all its rows are in `failedRows`.
   */
  process(rows) {
    const failedRows = [];
    const ready = [];
    rows.forEach((row) => {
      const code = this.faultOf(row);
      if (code) {
        failedRows.push(failed(row.id, code, FAULTS[code], 'VALIDATION'));
      } else {
        ready.push(row);
      }
    });
    if (ready.length === 0) {
      return { successIds: [], failedRows, uploadFailed: false };
    }
    try {
      this.upload(ready);
    } catch (error) {
      const message = this.hideClicks(messageOf(error), ready).slice(0, MESSAGE_CHARS);
      Logger.log(`The upload of ${ready.length} rows failed: ${message}`);
      ready.forEach((row) => {
        failedRows.push(failed(row.id, 'UPLOAD_EXCEPTION', message, 'TRANSIENT'));
      });
      return { successIds: [], failedRows, uploadFailed: true };
    }
    return { successIds: ready.map((row) => row.id), failedRows, uploadFailed: false };
  }

  /** apply() returns nothing: Google reads the rows later, and shows them in its Uploads page. */
  upload(rows) {
    const more = Object.keys(MORE_COLUMNS).filter((name) => rows.some((row) => row[name]));
    const columns = COLUMNS.concat(more.map((name) => MORE_COLUMNS[name]));
    const upload = AdsApp.bulkUploads().newCsvUpload(columns, {
      moneyInMicros: false,
      timeZone: AdsApp.currentAccount().getTimeZone(),
    });
    upload.forOfflineConversions();
    upload.setFileName(`kesin-${new Date(Date.now()).toISOString().replace(/[:.]/g, '-')}.csv`);
    rows.forEach((row) => {
      const line = this.lineOf(row);
      more.forEach((name) => {
        line[MORE_COLUMNS[name]] = CONSENTS[row[name]] || row[name] || '';
      });
      upload.append(line);
    });
    upload.apply();
  }

  /** A row as a line of the CSV file, with one click id in its column. */
  lineOf(row) {
    const click = clickOf(row);
    return {
      'Order ID': row.orderId || '',
      'Google Click ID': click.kind === 'gclid' ? click.id : '',
      WBRAID: click.kind === 'wbraid' ? click.id : '',
      GBRAID: click.kind === 'gbraid' ? click.id : '',
      'Conversion name': row.conversionName,
      // Google accepts +0300 in a file, but not the +03:00 that its API requires.
      'Conversion time': row.conversionTime.replace(TIME, '$1-$2-$3 $4:$5:$6$7$8$9'),
      'Conversion value': Number(row.conversionValue),
      'Conversion currency': row.conversionCurrency,
    };
  }

  /** The code of the first problem of a row, or null. */
  faultOf(row) {
    const click = clickOf(row);
    if (click === null) {
      return 'MISSING_CLICK_ID';
    }
    if (!CLICK_ID.test(click.id)) {
      return 'INVALID_CLICK_ID_FORMAT';
    }
    if (isBlank(row.conversionTime)) {
      return 'MISSING_TIME';
    }
    if (!isTime(row.conversionTime)) {
      return 'INVALID_TIME_FORMAT';
    }
    if (!isValue(row.conversionValue)) {
      return 'INVALID_CONVERSION_VALUE';
    }
    return null;
  }

  hideClicks(text, rows) {
    return rows.reduce((left, row) => left.split(clickOf(row).id).join('***'), text);
  }
}

function failed(queueId, errorCode, errorMessage, errorCategory) {
  return { queueId, errorCode, errorMessage, errorCategory };
}

/** The click id to send: gclid, otherwise wbraid, otherwise gbraid. */
function clickOf(row) {
  const kind = ['gclid', 'wbraid', 'gbraid'].find((one) => !isBlank(row[one]));
  return kind ? { kind, id: String(row[kind]) } : null;
}

function isBlank(value) {
  return value === undefined || value === null || String(value).trim() === '';
}

function isTime(value) {
  const found = TIME.exec(value);
  if (!found) {
    return false;
  }
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map(Number);
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
  const dated = year > 0 && month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
  const offset = Number(found[8]) * 60 + Number(found[9]);
  const zoned = Number(found[9]) < 60 && offset <= 14 * 60;
  return dated && zoned && hour < 24 && minute < 60 && second < 60;
}

function isValue(value) {
  if (typeof value === 'string') {
    return DECIMAL.test(value) && Number.isFinite(Number(value));
  }
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

/** The pause that a server requests, in milliseconds; the header contains seconds or a date. */
function retryAfterMs(text) {
  if (isBlank(text)) {
    return 0;
  }
  const asked = /^\s*\d+\s*$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
  return asked > 0 ? asked : 0;
}

function readJson(response) {
  try {
    return JSON.parse(response.getContentText());
  } catch (error) {
    return null;
  }
}

function messageOf(error) {
  return String((error && error.message) || error);
}
