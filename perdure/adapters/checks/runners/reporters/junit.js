// Writes a test as an element of JUnit. Stands before the other reporters in the file that a runner loads inside the
// sandbox; runners/runner_table.py puts them together.

const MESSAGE_CHARS = 20_000;
const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', '\n': '&#10;', '\t': '&#9;', '\r': '&#13;' };

/** Returns the text for XML; `\ufffd` stands for each character that XML cannot hold. */
function escapeXml(text) {
  return String(text)
    .replace(/[^\t\n\r\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, '\ufffd')
    .replace(/[&<>"\n\t\r]/g, (character) => ESCAPES[character]);
}

/** Returns a `testcase`: `titles` are those of the suites and its own; `result` is `failure`, `error`, `skipped` or empty. */
function testcase(file, titles, milliseconds, result, message = '') {
  const attributes = `name="${escapeXml(titles.join(' > '))}" classname="test" file="${escapeXml(file)}"`;
  const text = escapeXml(String(message).slice(0, MESSAGE_CHARS));
  const body = result ? `<${result}>${text}</${result}>` : '';
  return `<testcase ${attributes} time="${((milliseconds || 0) / 1000).toFixed(6)}">${body}</testcase>\n`;
}

const HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n';
const TAIL = '</testsuites>\n';
