import type { Catalogue, Table } from "./catalogueOf.ts"

const includes = (all: ReadonlyArray<string>, some: ReadonlyArray<string>) => some.every((one) => all.includes(one))

const inColumns = (before: Table, after: Table) => [
  ...Object.entries(before.columns).flatMap(([name, was]) => {
    const is = after.columns[name]
    if (is === undefined) return [`column ${name} is gone`]
    return [
      ...(is.type === was.type ? [] : [`column ${name} is ${is.type}, which was ${was.type}`]),
      ...(is.required && !was.required ? [`column ${name} must be set`] : []),
      ...(was.filled && !is.filled ? [`column ${name} has no default any more`] : [])
    ]
  }),
  ...Object.entries(after.columns)
    .filter(([name, { filled, required }]) => !(name in before.columns) && required && !filled)
    .map(([name]) => `new column ${name} must be set`)
]

/** A key with more columns than one that was there refuses nothing that this one let in. */
const inKeys = (before: Table, after: Table) => [
  ...before.unique
    .filter((key) => !after.unique.some((other) => other.join() === key.join()))
    .map((key) => `unique key (${key.join(", ")}) is gone`),
  ...after.unique
    .filter((key) => !before.unique.some((other) => includes(key, other)))
    .map((key) => `unique key (${key.join(", ")}) is new`)
]

/** A reference with more columns than one that was there holds whenever the account of a row is that of its target. */
const inRules = (before: Table, after: Table) =>
  after.rules
    .filter(({ columns, rule, to }) =>
      rule === "reference"
        ? !before.rules.some((other) => other.to === to && includes(columns, other.columns))
        : !before.rules.some((other) => other.rule === rule)
    )
    .filter(({ columns }) => columns.length === 0 || columns.some((name) => name in before.columns))
    .map(({ columns, rule, to }) => `new rule on (${columns.join(", ")}): ${rule}${to === "" ? "" : ` to ${to}`}`)

/** What a program written for the one schema may fail at on the other. */
export const incompatibilities = (before: Catalogue, after: Catalogue): ReadonlyArray<string> =>
  Object.entries(before).flatMap(([name, was]) => {
    const is = after[name]
    return is === undefined
      ? [`table ${name} is gone`]
      : [...inColumns(was, is), ...inKeys(was, is), ...inRules(was, is)].map((found) => `${name}: ${found}`)
  })
