// Headless Chromium for the tests and screenshots of the page.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

export const executablePath = [process.env.REDLINE_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => p && existsSync(p));

export const launch = () => chromium.launch({ executablePath, args: ['--no-sandbox'] });

/** Opens the page of the server at `url`, waits until it is connected, and collects what goes wrong in it in `problems`. */
export async function openPage(browser, url, options = {}, script) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: 'reduce', permissions: ['clipboard-read', 'clipboard-write'], ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30000);
  const problems = [];
  page.on('pageerror', (e) => problems.push(`${e.message}\n${e.stack}`));
  page.on('console', (m) => {
    if (m.type() === 'error' && !/Failed to load resource|ERR_/.test(m.text())) problems.push(m.text());
  });
  page.on('request', (r) => {
    if (!r.url().startsWith(url) && !/^(blob|data):/.test(r.url())) problems.push(`a request to ${r.url()}`);
  });
  if (script) await page.addInitScript(script);
  await page.goto(url);
  await page.getByText('Connected').first().waitFor({ state: 'attached' });
  return { context, page, problems };
}
