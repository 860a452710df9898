// A web site of somebody else: another origin than Firsthop's, with pages that call it.

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';

/**
 * Serves `html` at / and the modules of a folder at /modules/, on a free port of localhost.
 *
 * @returns {Promise<{url: string, close: () => Promise<void>}>}
 */
export async function serve(html, folder = null) {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    try {
      if (pathname === '/') {
        response.setHeader('Content-Type', 'text/html; charset=utf-8').end(html);
      } else if (folder && pathname.startsWith('/modules/')) {
        const module = await readFile(join(folder, basename(pathname)));
        response.setHeader('Content-Type', 'text/javascript; charset=utf-8').end(module);
      } else {
        // A browser asks for an icon by itself; that there is none is no error.
        response.writeHead(204).end();
      }
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, 'localhost', resolve));
  return {
    url: `http://localhost:${server.address().port}/`,
    close: () => new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    }),
  };
}
