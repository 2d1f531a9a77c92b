import { Redacted } from "effect"
import { Provider } from "../domain/Provider.ts"
import { Region } from "../domain/Region.ts"
import {
  anyOf,
  hasOnly,
  isBoolean,
  isHash,
  isObject,
  isShort,
  isString,
  isText,
  isUuid,
  isWithin,
  type Members,
  orNull
} from "../domain/plainInput.ts"
import { EndpointKind, strategies } from "../domain/routing/RoutingRequest.ts"
import { isOneOf, type NewRoute, namesOneAccount, type Report, type RouteReport } from "./GatewayApi.ts"

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
  api_key_hash: orNull(isHash),
  user_id: orNull(isText),
  model: (value) => value !== "" && isShort(value),
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
