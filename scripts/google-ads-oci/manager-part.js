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
