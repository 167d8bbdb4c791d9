// A reporter for mocha, which prints what fails and writes `junit.xml` beside itself when all tests have ended.
const fs = require('fs');
const path = require('path');

module.exports = class Report {
  constructor(runner) {
    const cases = new Map();
    const record = (test, result, error) => {
      const message = error ? String(error.stack || error.message || error) : '';
      cases.set(test, testcase(test.file || '', test.titlePath(), test.duration, result, message));
      if (message) console.log(`  failed: ${test.fullTitle()}\n${message}\n`);
    };
    runner.on('pass', (test) => record(test, ''));
    runner.on('pending', (test) => record(test, 'skipped'));
    runner.on('fail', (test, error) => record(test, 'failure', error || 'failed'));
    runner.on('end', () => {
      console.log(`  ${runner.stats.passes} passing, ${runner.stats.failures} failing, ${runner.stats.pending} pending`);
      fs.writeFileSync(path.join(__dirname, 'junit.xml'), HEAD + [...cases.values()].join('') + TAIL);
    });
  }
};
