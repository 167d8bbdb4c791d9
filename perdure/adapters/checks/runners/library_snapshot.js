'use strict';
// Loaded first by each node of a run with canaries (tests that must fail): records what decides whether values are
// equal, and node's own modules, before the product can reach them. A canary then calls
// `globalThis[Symbol.for('library snapshot')](modules)` for the names of what is no longer what it was, as one text.
// A realm of its own (jest gives one to each test file) has a record of its own, made when it is created.
// The search calls no method of a prototype and iterates over nothing: those may be replaced themselves.
{
  const recordRealm = (require, process) => {
    const { ownKeys, getOwnPropertyDescriptor: describe } = Reflect;
    const text = String, cwd = process.cwd.bind(process), directory = cwd();
    const added = ['toJSON', 'valueOf', 'toString', Symbol.toPrimitive, Symbol.toStringTag, Symbol.hasInstance];
    const names = 'Array BigInt Boolean Date Error JSON Map Math Number Object Reflect RegExp Set String Symbol';
    const globals = names.split(' ');
    const modules = 'assert assert/strict buffer events fs fs/promises os path stream timers timers/promises url util';
    const places = [];
    const record = (module, place, holder) => {
      if (holder === null || !['function', 'object'].includes(typeof holder)) return;
      const keys = ownKeys(holder), descriptors = keys.map((key) => describe(holder, key));
      places.push({ module, place, holder, keys, descriptors, added: added.filter((key) => !keys.includes(key)) });
    };
    const recordAll = (module, place, holder) => {
      record(module, place, holder);
      if (typeof holder === 'function') record(module, `${place}.prototype`, holder.prototype);
    };
    for (const name of globals) recordAll('', name, globalThis[name]);
    for (const [place, values] of [['Array', []], ['Map', new Map()], ['Set', new Set()], ['String', '']])
      record('', `${place} iterator`, Object.getPrototypeOf(values[Symbol.iterator]()));
    for (const name of modules.split(' ')) {
      const exported = require(name);
      recordAll(name, name, exported);
      for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(exported)))
        if (typeof value === 'function' && value.prototype) recordAll(name, `${name}.${key}`, value);
    }
    const values = globals.map((name) => globalThis[name]);
    const findReplaced = (imported) => {
      let names = '', count = 0;
      const add = (name) => {
        if (count < 20) names += (count ? ', ' : '') + name;
        count += 1;
      };
      const isUsed = (module) => {
        if (module === '' || module === 'assert' || module === 'assert/strict' || module === 'util') return true;
        for (let at = 0; at < imported.length; at += 1) if (imported[at] === module) return true;
        return false;
      };
      for (let at = 0; at < globals.length; at += 1) if (globalThis[globals[at]] !== values[at]) add(globals[at]);
      for (let at = 0; at < places.length; at += 1) {
        const { module, place, holder, keys, descriptors, added: absent } = places[at];
        if (!isUsed(module)) continue;
        for (let one = 0; one < keys.length; one += 1) {
          const was = descriptors[one], now = describe(holder, keys[one]);
          const isOther = typeof was.value === 'function' && now?.value !== was.value;
          if (isOther || now?.get !== was.get) add(`${place}.${text(keys[one])}`);
        }
        for (let one = 0; one < absent.length; one += 1)
          if (describe(holder, absent[one])) add(`${place}.${text(absent[one])}`);
      }
      if (cwd() !== directory) add('the working directory');
      return names;
    };
    Object.defineProperty(globalThis, Symbol.for('library snapshot'), { value: findReplaced });
  };
  recordRealm(require, process);
  const vm = require('vm'), { createContext, runInContext } = vm;
  vm.createContext = (...given) => {
    const context = createContext(...given);
    runInContext(`(${recordRealm})`, context)(require, process);
    return context;
  };
}
