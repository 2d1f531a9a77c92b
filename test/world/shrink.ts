import { type History, historyOf } from "./History.ts"
import { World } from "./World.ts"

/** What breaks in a history, if anything does. */
export const brokenIn = (history: History): string | undefined => new World(history).run()

const kindOf = (broken: string) => broken.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, "").slice(0, 40)

/** The shortest history that breaks in the same way: without steps, then without what happens to one. */
export const shrink = (history: History): History => {
  const kind = kindOf(brokenIn(history) ?? "")
  const breaks = (steps: History["steps"], seeds: number) => {
    for (let n = 0; n < seeds; n += 1) {
      const shorter = { ...history, seed: history.seed + n * 1_000_003, steps }
      const broken = brokenIn(shorter)
      if (broken !== undefined && kindOf(broken) === kind) return shorter
    }
    return undefined
  }
  let best = history
  for (let size = best.steps.length; size >= 1; size = Math.floor(size / 2)) {
    for (let at = 0; at < best.steps.length;) {
      const shorter = breaks(best.steps.toSpliced(at, size), 40)
      if (shorter === undefined) at += size
      else best = shorter
    }
  }
  for (const at of best.steps.keys()) {
    for (const change of [{ faults: [] }, { leaves: false }, { wait: 0 }, { joins: true }, { instance: 0 }]) {
      const step = best.steps[at]
      if (step === undefined) continue
      best = breaks(best.steps.with(at, { ...step, ...change }), 10) ?? best
    }
  }
  return best
}

export const shown = (history: History): string =>
  [
    JSON.stringify({ ...history, steps: undefined }),
    ...history.steps.map(({ deed, faults, instance, joins, leaves, wait }) => {
      const parts = [
        wait > 0 ? `${wait} ms later` : "",
        joins ? "when all is done" : "at once",
        `instance ${instance}:`
      ]
      const met = faults.map(([n, fault]) => `statement ${n} is ${fault}`)
      return `  ${[...parts, JSON.stringify(deed), ...met, leaves ? "and leaves" : ""].filter((part) => part !== "").join(" ")}`
    })
  ].join("\n")

/** What is wrong with a seed, and the shortest history that shows it. */
export const reportOf = (seed: number): string | undefined => {
  const history = historyOf(seed)
  const broken = brokenIn(history)
  if (broken === undefined) return undefined
  const shortest = shrink(history)
  return `seed ${seed}: ${broken}\n${new World(shortest).run(10)}\n${shown(shortest)}`
}
