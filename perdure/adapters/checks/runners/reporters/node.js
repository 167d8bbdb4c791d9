// A reporter for `node --test`. node's own JUnit reporter leaves out the file and the suites' titles, and writes invalid
// XML for a title with a control character.
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

export default async function* report(events) {
  const titles = [];
  yield HEAD;
  for await (const { type, data } of events) {
    if (type === 'test:start') titles[data.nesting] = data.name;
    if (type === 'test:pass' || type === 'test:fail') yield eventCase(data, titles);
  }
  yield TAIL;
}
