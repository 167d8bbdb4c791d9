// Loaded by node before uvu, which names only what fails: writes `junit.xml` beside itself from what uvu notes in a suite's
// state as each test begins, and the mark that it prints as the test ends. Older than 0.5.2 it notes nothing.
const fs = require('fs');
const path = require('path');

const main = process.argv[1] && fs.existsSync(process.argv[1]) ? fs.realpathSync(process.argv[1]) : '';
if (/[\\/]uvu[\\/]bin\.js$/.test(main)) {
  const cases = [], marks = { '•': '', '✘': 'failure' };
  const plain = (text) => String(text).replace(/\x1b\[\d+m/g, '');
  let file = '', current = null;

  const beginTest = (suite, name) => {
    current = name === '' ? null : { file, titles: [suite, name].filter(Boolean), result: 'error', message: '' };
    if (current) cases.push(current);
  };
  Object.defineProperty(Object.prototype, '__suite__', {
    configurable: true,
    set(suite) { // as it makes a suite
      const property = { configurable: true, enumerable: true };
      let test = '';
      const set = (name) => { test = name; beginTest(suite, name); };
      Object.defineProperty(this, '__suite__', { ...property, writable: true, value: suite });
      Object.defineProperty(this, '__test__', { ...property, get: () => test, set });
    },
  });

  const { write } = process.stdout;
  process.stdout.write = function (text, ...given) {
    const mark = plain(text).trim();
    if (current && mark in marks) current.result = marks[mark];
    return write.call(this, text, ...given);
  };

  const fileOf = (name) => {
    const places = new Error().stack.match(/(?<=\(|at |file:\/\/)\/[^()]+?(?=:\d+:\d+\)?$)/gm) || [];
    return decodeURI(places.find((place) => place.endsWith(`/${name}`)) || name);
  };
  const follow = (group) => Object.defineProperty(group, 'push', {
    value(run) { // as a suite is to be run
      const suiteFile = fileOf(group[0]);
      return Array.prototype.push.call(group, async () => {
        file = suiteFile;
        const first = cases.length, outcome = await run();
        const messages = plain(outcome[0]).split(/^ {3}FAIL /m).slice(1);
        for (const each of cases.slice(first)) if (each.result) each.message = messages.shift() || '';
        return outcome;
      });
    },
  });
  globalThis.UVU_QUEUE = Object.defineProperty([], 'push', {
    value(...groups) { return Array.prototype.push.apply(this, groups.map(follow)); },
  });
  process.on('exit', () => {
    const elements = cases.map((each) => testcase(each.file, each.titles, 0, each.result, each.message));
    if (elements.length > 0) fs.writeFileSync(path.join(__dirname, 'junit.xml'), HEAD + elements.join('') + TAIL);
  });
}
