import * as Plain from "@effect/vitest"
import { Effect, identity, type Layer, type Scope } from "effect"
import { chai, type TestContext, type TestOptions } from "vitest"
import { Skipped } from "./process/installedPrograms.ts"

export { assert, describe } from "@effect/vitest"

/** Compares errors by their fields too: Chai compares only their names, messages and codes. */
const comparator = (one: unknown, other: unknown): boolean | null =>
  one instanceof Error && other instanceof Error
    ? one.name === other.name &&
      one.message === other.message &&
      isDeepEqual(Object.entries(one), Object.entries(other))
    : null
const isDeepEqual = (one: unknown, other: unknown): boolean => chai.util.eql(one, other, { comparator })
chai.config.deepEqual = isDeepEqual

type Needing<R> = Effect.Effect<unknown, unknown, R>
type Body<Given, Made> = (given: Given, context: TestContext) => Made

interface Test<R, Given = TestContext> {
  <Step extends Needing<R>>(
    name: string,
    body: Body<Given, Generator<Step, unknown, never>>,
    timeout?: number | TestOptions
  ): void
  (name: string, body: Body<Given, Needing<R>>, timeout?: number | TestOptions): void
}

type Arbitraries = Plain.Vitest.Arbitraries
type Values<Given extends Arbitraries> = { [K in keyof Given]: Plain.Vitest.ArbitraryValue<Given[K]> }
type Runs = Parameters<Plain.Vitest.Methods["prop"]>[3]

interface Property<R> {
  <const Given extends Arbitraries, Step extends Needing<R>>(
    name: string,
    given: Given,
    body: Body<Values<Given>, Generator<Step, unknown, never>>,
    runs?: Runs
  ): void
  <const Given extends Arbitraries>(
    name: string,
    given: Given,
    body: Body<Values<Given>, Needing<R>>,
    runs?: Runs
  ): void
}

interface Tester<R> extends Test<R> {
  readonly skipIf: (condition: unknown) => Test<R>
  readonly each: <T>(cases: ReadonlyArray<T>) => Test<R, T>
  readonly prop: Property<R>
}

type Options = Parameters<typeof Plain.layer>[1]
type Group<R> = (...group: [name: string, tests: (it: It<R>) => void] | [tests: (it: It<R>) => void]) => void

/** `it` of `@effect/vitest`, where the body of a test may be a generator, as that of `Effect.gen`. */
export interface It<R = never> extends Plain.API {
  readonly effect: Tester<R | Scope.Scope>
  readonly prop: Plain.Vitest.Methods["prop"]
  readonly layer: <R2, E>(provided: Layer.Layer<R2, E, R>, options?: Options) => Group<R | R2>
}

type Callable = (...given: ReadonlyArray<unknown>) => unknown
type Layering = (...given: ReadonlyArray<unknown>) => Callable

const isFunction = (given: unknown): given is Callable => typeof given === "function"

type Around = (made: Needing<never>) => Needing<never>

/** Skips the test, with its reason, if its body fails because the machine lacks what the test needs. */
const orSkip = (made: Needing<never>, test: unknown) =>
  Effect.catchIf(
    made,
    (error) => error instanceof Skipped,
    ({ why }) =>
      Effect.sync(() => {
        ;(test as TestContext).skip(why)
      })
  )

/** Converts the result of a test body to an effect if it is a generator. */
const generated = (around: Around) => (given: unknown) =>
  !isFunction(given)
    ? given
    : (value: unknown, context: unknown) => {
        const made = given(value, context)
        const isGenerator = Object.prototype.toString.call(made) === "[object Generator]"
        const body = isGenerator
          ? Effect.gen(() => made as Generator<Needing<never>, unknown, never>)
          : (made as Needing<never>)
        return around(orSkip(body, context ?? value))
      }

const tester = (plain: Readonly<Record<"each" | "prop" | "skipIf", Callable>>, around: Around = identity) => {
  const testing =
    (test: unknown): Callable =>
    (...given) =>
      (test as Callable)(...given.map(generated(around)))
  return Object.assign(testing(plain), {
    each: (cases: unknown) => testing(plain.each(cases)),
    skipIf: (condition: unknown) => testing(plain.skipIf(condition)),
    prop: testing(plain.prop)
  })
}

const grouping =
  (layer: Layering): Layering =>
  (...given) =>
  (...group) =>
    layer(...given)(...group.map((one) => (isFunction(one) ? (it: object) => one(accepting(it)) : one)))

const accepting = <A extends object>(it: A) =>
  new Proxy(it, {
    get: (_, name) => {
      const found: unknown = Reflect.get(it, name)
      if (name === "effect" || name === "live") return tester(found as never)
      return name === "layer" ? grouping(found as Layering) : found
    }
  })

export const it = accepting(Plain.it) as unknown as It & { readonly live: Tester<Scope.Scope> }

/** `it.effect`, each of whose tests builds the layer anew. */
export const itWith = <R, E>(provided: Layer.Layer<R, E>) =>
  tester(Plain.it.effect as never, (made) => Effect.provide(made, provided)) as unknown as Tester<R | Scope.Scope>

export const layer = it.layer

/** `layer`, in real time: its tests have neither the test clock nor the test console. */
export const layerLive = <R, E>(provided: Layer.Layer<R, E>, options: Options = {}) =>
  layer(provided, { ...options, excludeTestServices: true })
