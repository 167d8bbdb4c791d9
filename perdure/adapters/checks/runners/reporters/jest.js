// A reporter for jest, which writes `junit.xml` beside itself when all tests have ended.
const fs = require('fs');
const path = require('path');

const RESULTS = { failed: 'failure', pending: 'skipped', skipped: 'skipped', todo: 'skipped', disabled: 'skipped' };

module.exports = class Report {
  onRunComplete(contexts, results) {
    const cases = [];
    for (const { testFilePath, testResults, testExecError, failureMessage } of results.testResults) {
      for (const { ancestorTitles, title, status, duration, failureMessages } of testResults) {
        const titles = [...ancestorTitles, title];
        cases.push(testcase(testFilePath, titles, duration, RESULTS[status], (failureMessages || []).join('\n')));
      }
      if (testExecError && !testResults.length) {
        cases.push(testcase(testFilePath, ['test suite failed to run'], 0, 'error', failureMessage));
      }
    }
    fs.writeFileSync(path.join(__dirname, 'junit.xml'), HEAD + cases.join('') + TAIL);
  }
};
