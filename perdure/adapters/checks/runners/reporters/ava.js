// Loaded by node before ava, in its main process alone: writes `junit.xml` beside itself from what ava's reporters hear.
// ava's own TAP names no file where there is one. ava 3 is left alone: its modules cannot be loaded before it.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';

const RESULTS = {
  'test-passed': '', 'test-failed': 'failure', 'hook-failed': 'failure', 'selected-test': 'skipped',
  'internal-error': 'error', 'missing-ava-import': 'error', 'uncaught-exception': 'error', 'unhandled-rejection': 'error',
  'worker-failed': 'error', timeout: 'error', 'process-exit': 'error', interrupt: 'error', 'shared-worker-error': 'error',
  'line-numbers-no-match': 'error',
};

function stateCases({ type, testFile, title, err, duration, skip, todo, pendingTests }) {
  const pending = [...(pendingTests ?? [])].flatMap(([file, titles]) => [...titles].map((each) => [file, each]));
  if (pending.length > 0) return pending.map(([file, each]) => testcase(file, [each], 0, 'error', type));
  if (!(type in RESULTS) || (type === 'selected-test' && !skip && !todo)) return [];
  const details = (err?.formattedDetails ?? []).map((one) => `${one.label} ${one.formatted}`);
  const message = [err?.message, ...details, err?.stack].filter(Boolean).join('\n');
  return [testcase(testFile ?? '', [title ?? type], duration, RESULTS[type], message)];
}

const main = isMainThread && process.argv[1] ? fs.realpathSync(process.argv[1]) : '';
if (/\/ava\/entrypoints\/cli\.m?js$/.test(main)) {
  const library = path.join(path.dirname(main), '..', 'lib', 'api.js');
  const { default: Api } = await import(pathToFileURL(library));
  const { emit } = Api.prototype;
  const cases = [];
  Api.prototype.emit = function (name, ...given) {
    if (name === 'run') given[0].status.on('stateChange', (state) => cases.push(...stateCases(state?.data ?? state)));
    return emit.call(this, name, ...given);
  };
  const { run } = Api.prototype;
  Api.prototype.run = async function (...given) {
    const status = await run.apply(this, given);
    fs.writeFileSync(new URL('junit.xml', import.meta.url), HEAD + cases.join('') + TAIL);
    return status;
  };
}
