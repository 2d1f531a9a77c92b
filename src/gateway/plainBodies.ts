import { Redacted } from "effect"
import { isStoredUuid } from "../domain/Identifiers.ts"
import { Provider } from "../domain/Provider.ts"
import { Region } from "../domain/Region.ts"
import { isPreserved } from "../domain/checkInput.ts"
import { EndpointKind, strategies } from "../domain/routing/RoutingRequest.ts"
import { isOneOf, type NewRoute, namesOneAccount, type Report, type RouteReport } from "./GatewayApi.ts"

/** Whether a member has a value that decodes to itself. */
type Members = Readonly<Record<string, (value: unknown) => boolean>>

const anyOf = (values: ReadonlyArray<unknown>) => {
  const known = new Set(values)
  return (value: unknown) => known.has(value)
}
const orNull = (is: (value: unknown) => boolean) => (value: unknown) => value === null || is(value)
const isString = (value: unknown) => typeof value === "string"
const isBoolean = (value: unknown) => typeof value === "boolean"
const isText = (value: unknown) => typeof value === "string" && isPreserved(value)
const isUuid = (value: unknown) => typeof value === "string" && isStoredUuid(value)
const isWithin = (least: number, most: number) => (value: unknown) =>
  Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const hasOnly = (given: Readonly<Record<string, unknown>>, members: Members): boolean => {
  for (const name in given) if (!Object.hasOwn(members, name) || members[name]?.(given[name]) !== true) return false
  return true
}

const endpoint: Members = {
  kind: anyOf(EndpointKind.literals),
  region: orNull(anyOf(Region.literals)),
  zdr: isBoolean,
  shared: isBoolean
}
const ofEndpoint = { kind: "standard", region: null, zdr: false, shared: true } as const

const target: Members = {
  provider: anyOf(Provider.literals),
  endpoint: (value) => isObject(value) && hasOnly(value, endpoint)
}

const route: Members = {
  account_id: isUuid,
  workspace_id: orNull(isUuid),
  credential_id: isUuid,
  api_key: isString,
  api_key_hash: orNull((value) => typeof value === "string" && /^[a-f0-9]{64}$/.test(value)),
  user_id: orNull(isText),
  // A text of no more units has no more characters.
  model: (value) => isText(value) && (value as string).length > 0 && (value as string).length <= 255,
  host: anyOf(Region.literals),
  requires_zdr: isBoolean,
  strategy: anyOf(strategies.literals),
  freshness_ms: isWithin(0, 600_000),
  explain: isBoolean,
  reports: (value) => Array.isArray(value) && value.length <= 100,
  targets: (value) =>
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((one) => isObject(one) && "provider" in one && hasOnly(one, target)) &&
    new Set(value.map(({ provider }: { readonly provider: string }) => provider)).size === value.length
}
const ofRoute = {
  ...{ workspace_id: null, api_key_hash: null, user_id: null, host: "global", requires_zdr: false },
  ...{ strategy: "byok_first", freshness_ms: 0, explain: false, reports: [] }
} as const

type Given<S> = { readonly [Name in keyof S]: S[Name] }

/** Decodes a request to route as `NewRoute` does, or leaves it to that: then it is refused, or in another form. */
export const plainNewRoute = (given: unknown): Given<typeof NewRoute.Type> | undefined => {
  if (!isObject(given) || !("model" in given && "targets" in given) || !hasOnly(given, route)) return undefined
  const filled = { ...ofRoute, ...(given as unknown as typeof NewRoute.Type) }
  if (!namesOneAccount(filled)) return undefined
  const targets = filled.targets.map((one) => ({ ...one, endpoint: { ...ofEndpoint, ...one.endpoint } }))
  const { api_key } = given
  return { ...filled, targets, ...(api_key === undefined ? {} : { api_key: Redacted.make(api_key as string) }) }
}

const report: Members = {
  status: orNull(isWithin(100, 599)),
  retry_after: orNull(isString),
  codes: (value) =>
    Array.isArray(value) &&
    value.length <= 20 &&
    value.every((one) => one === null || isString(one) || Number.isFinite(one)),
  abandoned: isBoolean
}
const riding: Members = {
  ...report,
  route: isString,
  attempt: isWithin(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)
}

/** Whether `Report` decodes this to itself. What it refuses is none. */
export const isPlainReport = (given: unknown): given is typeof Report.Type =>
  isObject(given) && hasOnly(given, report) && isOneOf(given)

/** The same of `RouteReport`. */
export const isPlainRouteReport = (given: unknown): given is typeof RouteReport.Type =>
  isObject(given) && "route" in given && "attempt" in given && hasOnly(given, riding) && isOneOf(given)
