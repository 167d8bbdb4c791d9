// A reporter for `node --test`. node's own JUnit reporter leaves out the file and the suites' titles, and writes invalid
// XML for a title with a control character.
import { resolve } from 'node:path';
import { inspect } from 'node:util';

function eventCase({ name, nesting, file, details, skip, todo }, titles) {
  const error = details?.error;
  const hasOwnFailure = error !== undefined && error.failureType !== 'subtestsFailed';
  if (details?.type === 'suite' && !hasOwnFailure) return '';
  const isSkipped = skip !== undefined || todo !== undefined;
  const result = isSkipped ? 'skipped' : error ? 'failure' : '';
  const message = result === 'failure' ? inspect(error.cause ?? error, { colors: false }) : '';
  return testcase(file ?? '', [...titles.slice(0, nesting), name], details?.duration_ms, result, message);
}

// The file of an event is the one that calls `test`, a helper of several files maybe. The file that runs is that of the
// summary behind its tests (node 22), or of the failure of a file that ended before one.
export default async function* report(events) {
  const titles = [];
  const ended = [];
  const takeCases = (file) =>
    ended.splice(0).map(([data, above]) => eventCase({ ...data, file: file ?? data.file }, above)).join('');
  yield HEAD;
  for await (const { type, data } of events) {
    if (type === 'test:start') titles[data.nesting] = data.name;
    const isEnd = type === 'test:pass' || type === 'test:fail';
    const isFile = isEnd && data.nesting === 0 && data.file === resolve(data.name);
    if (isFile || (type === 'test:summary' && data.file)) yield takeCases(data.file);
    if (isEnd) ended.push([data, titles.slice(0, data.nesting)]);
    if (isFile) yield takeCases();
  }
  yield takeCases() + TAIL;
}
