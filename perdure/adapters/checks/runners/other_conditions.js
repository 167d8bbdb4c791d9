'use strict';
// Loaded first by each node of a run under other conditions: another clock and program name, and no variables that name
// the test runner or the machine, as far as the repository's own code asks.
{
  const shift = 86425620000, program = '/usr/local/bin/program', directory = `${process.cwd()}/`;
  const hidden = /^(NODE_TEST_CONTEXT|JEST_WORKER_ID|VITEST\w*|NODE_ENV|CI|npm_lifecycle_\w+)$/;
  const isOfRepository = (file) => file.startsWith(directory) && !file.includes('/node_modules/');
  const isAskedByRepository = () => {
    const { stackTraceLimit, prepareStackTrace } = Error;
    Error.stackTraceLimit = 10;
    Error.prepareStackTrace = (error, sites) => sites;
    const sites = new Error().stack;
    Object.assign(Error, { stackTraceLimit, prepareStackTrace });
    if (sites.some((site) => site.getFunctionName() === 'createProcessEnv')) return true; // jest's copy for a test file
    const files = sites.map((site) => String(site.getFileName() ?? ''));
    return isOfRepository((files.find((file) => file && file !== __filename) ?? '').replace('file://', ''));
  };
  const isHidden = (name) => typeof name === 'string' && hidden.test(name) && isAskedByRepository();
  process.env = new Proxy(process.env, {
    get: (env, name) => (isHidden(name) ? undefined : env[name]),
    set: (env, name, value) => Reflect.set(env, name, value),
    has: (env, name) => name in env && !isHidden(name),
    ownKeys: (env) => Reflect.ownKeys(env).filter((name) => !isHidden(name)),
  });
  const file = process.argv[1], get = () => (isAskedByRepository() ? program : file);
  if (file) Object.defineProperty(process.argv, 1, { get, configurable: true, enumerable: true });
  const shiftClock = (shift) => {
    const Real = Date, now = Date.now;
    Real.now = () => now() + shift;
    globalThis.Date = Real.prototype.constructor = new Proxy(Real, {
      apply: () => new Date().toString(),
      construct: (real, given, target) => Reflect.construct(real, given.length ? given : [real.now()], target),
    });
  };
  if (shift) {
    const vm = require('vm'), { createContext, runInContext } = vm;
    shiftClock(shift);
    vm.createContext = (...given) => {
      const context = createContext(...given);
      runInContext(`(${shiftClock})(${shift})`, context);
      return context;
    };
  }
}
