'use strict';
// Loaded first by each node of a run with canaries (tests that must fail): records what decides whether values are
// equal, and node's own modules, before the product can reach them. A canary then calls
// `globalThis[Symbol.for('library snapshot')](modules)` for the names of what is no longer what it was.
{
  const { ownKeys, getOwnPropertyDescriptor: describe } = Reflect;
  const added = ['toJSON', 'valueOf', 'toString', Symbol.toPrimitive, Symbol.toStringTag, Symbol.hasInstance];
  const places = [], directory = process.cwd(), cwd = process.cwd.bind(process);
  const record = (module, place, holder) => {
    if (holder === null || !['function', 'object'].includes(typeof holder)) return;
    places.push([module, place, holder, new Map(ownKeys(holder).map((key) => [key, describe(holder, key)]))]);
  };
  const recordAll = (module, place, holder) => {
    record(module, place, holder);
    if (typeof holder === 'function') record(module, `${place}.prototype`, holder.prototype);
  };
  const globals = 'Array BigInt Boolean Date Error JSON Map Math Number Object Reflect RegExp Set String Symbol'.split(' ');
  for (const name of globals) recordAll('', name, globalThis[name]);
  for (const [place, values] of [['Array', []], ['Map', new Map()], ['Set', new Set()], ['String', '']])
    record('', `${place} iterator`, Object.getPrototypeOf(values[Symbol.iterator]()));
  const modules = 'assert assert/strict buffer events fs fs/promises os path stream timers timers/promises url util';
  for (const name of modules.split(' ')) {
    const exported = require(name);
    recordAll(name, name, exported);
    for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(exported)))
      if (typeof value === 'function' && value.prototype) recordAll(name, `${name}.${key}`, value);
  }
  const functions = globals.map((name) => [name, globalThis[name]]);
  const findReplaced = (imported) => {
    const used = new Set(['', 'assert', 'assert/strict', 'util', ...imported]);
    const replaced = new Set(functions.filter(([name, was]) => globalThis[name] !== was).map(([name]) => name));
    for (const [module, place, holder, before] of places) {
      if (!used.has(module)) continue;
      for (const [key, was] of before) {
        const now = describe(holder, key);
        const value = typeof was.value === 'function' && now?.value !== was.value;
        if (value || now?.get !== was.get) replaced.add(`${place}.${String(key)}`);
      }
      for (const key of added)
        if (describe(holder, key) && !before.has(key)) replaced.add(`${place}.${String(key)}`);
    }
    if (cwd() !== directory) replaced.add('the working directory');
    return [...replaced].sort().slice(0, 20);
  };
  Object.defineProperty(globalThis, Symbol.for('library snapshot'), { value: findReplaced });
}
