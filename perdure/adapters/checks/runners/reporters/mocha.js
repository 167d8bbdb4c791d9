// A reporter for mocha, which prints what fails and writes `junit.xml` beside itself when all tests have ended.
const fs = require('fs');
const path = require('path');

// As `titlePath()`, which mocha has since version 4.
const titles = (item) => [...(item.parent ? titles(item.parent) : []), item.title].filter(Boolean);

module.exports = class Report {
  constructor(runner) {
    const cases = new Map(), counts = { '': 0, failure: 0, skipped: 0 };
    const record = (test, result, error) => {
      const message = error ? String(error.stack || error.message || error) : '';
      cases.set(test, testcase(test.file || '', titles(test), test.duration, result, message));
      counts[result] += 1;
      if (message) console.log(`  failed: ${test.fullTitle()}\n${message}\n`);
    };
    runner.on('pass', (test) => record(test, ''));
    runner.on('pending', (test) => record(test, 'skipped'));
    runner.on('fail', (test, error) => record(test, 'failure', error || 'failed'));
    runner.on('end', () => {
      console.log(`  ${counts['']} passing, ${counts.failure} failing, ${counts.skipped} pending`);
      fs.writeFileSync(path.join(__dirname, 'junit.xml'), HEAD + [...cases.values()].join('') + TAIL);
    });
  }
};
