import type { Provider } from "../../Provider.ts"
import type { UpstreamError } from "./UpstreamError.ts"
import type { ErrorRule, ErrorRules } from "./ErrorRule.ts"
import { everyProvider } from "./everyProvider.ts"
import { hosts } from "./hosts.ts"
import { makers } from "./makers.ts"

const google = [...makers["google-ai-studio"], ...makers["google-vertex"]]
const claudeOnAws = [...makers.anthropic, ...hosts["amazon-bedrock"]]

/** The rules of each provider, of which the first that matches counts. Some serve the API of another one. */
const byProvider: ErrorRules = {
  ...makers,
  ...hosts,
  "google-ai-studio": google,
  "google-vertex": google,
  "anthropic/2": makers.anthropic,
  "claude-on-aws": claudeOnAws,
  "amazon-bedrock/claude-on-aws": claudeOnAws
}

/** The rules that apply to a provider, in their order. */
export const errorRulesOf = (provider: Provider): ReadonlyArray<ErrorRule> => [
  ...(byProvider[provider] ?? []),
  ...everyProvider
]

/** Whether a status says that the request succeeded, although its body may be an error, as of a stream. */
export const isSuccess = (status: number): boolean => status >= 200 && status < 400

/** The first rule that knows an error. After a success, each error counts whatever its usual status. */
export const errorRuleFor = (
  provider: Provider,
  status: number,
  { codes, messages }: Pick<UpstreamError, "codes" | "messages">
): ErrorRule | undefined => {
  const known = new Set(codes.map((code) => code.toLowerCase()))
  const matches = ({ code, message, statuses }: ErrorRule) => {
    const named = code !== undefined || message !== undefined
    return (
      (statuses.includes(status) || (named && isSuccess(status))) &&
      (code === undefined || known.has(code)) &&
      (message === undefined || messages.some((text) => text.startsWith(message)))
    )
  }
  return errorRulesOf(provider).find(matches)
}
