// Takes the README's pictures of the report anew: tests/browser/run picture-report.js

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { launchChromium } from './support/chromium.js';
import { REPOSITORY } from './support/stack.js';

/** As wide as the README shows it, or nearly. */
const SIZE = { width: 1120, height: 900 };

const report = pathToFileURL(join(REPOSITORY, 'perf/results/report.html')).href;
const browser = await launchChromium(null);
try {
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({ viewport: SIZE, colorScheme });
    const page = await context.newPage();
    await page.goto(report);
    // As much of the page as a reader sees first: the first figures, and the first of the charts.
    const chart = await page.locator('figure').first().boundingBox();
    const clip = { x: 0, y: 0, width: SIZE.width, height: chart.y + chart.height + 12 };
    await page.screenshot({ path: join(REPOSITORY, `docs/report-${colorScheme}.png`), fullPage: true, clip });
    await context.close();
  }
} finally {
  await browser.close();
}
