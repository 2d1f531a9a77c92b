import type { ErrorRule } from "./ErrorRule.ts"

/** What codes mean that many providers share, because they copy the API of OpenAI. */
export const everyProvider: ReadonlyArray<ErrorRule> = [
  // https://developers.openai.com/api/docs/guides/spend-limits.md
  { statuses: [429], code: "organization_spend_limit_exceeded", outcome: "QuotaExhausted" },
  // https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors
  { statuses: [429], code: "project_spend_limit_exceeded", outcome: "QuotaExhausted" },
  // https://help.openai.com/en/articles/5955604-troubleshooting-api-rate-limits-and-429-errors
  { statuses: [429], code: "organization_usage_limit_exceeded", outcome: "QuotaExhausted" },
  // home-assistant/core#120072
  { statuses: [403], code: "unsupported_country_region_territory", outcome: "UpstreamFailed" },
  // timkmecl/chatgpt-vscode#45
  { statuses: [400, 403, 404], code: "model_not_found", outcome: "NotServed" },
  // ChatGPTNextWeb/NextChat#4175
  { statuses: [401], code: "account_deactivated", outcome: "Rejected" },
  // lifan0127/ai-research-assistant#174
  { statuses: [429], code: "billing_not_active", outcome: "QuotaExhausted" },
  // Pythagora-io/gpt-pilot#340
  { statuses: [400, 401, 402, 403, 429], code: "insufficient_quota", outcome: "QuotaExhausted" },
  // dfinke/PowerShellAI#127
  { statuses: [400, 402, 403, 429], code: "billing_hard_limit_reached", outcome: "QuotaExhausted" },
  // MSU-AI-Agents/fall-2025-course#76
  { statuses: [429], code: "rate_limit_exceeded", outcome: "RateLimited" },
  // public code of clients
  { statuses: [400, 402, 403, 429], code: "credit_balance_exhausted", outcome: "QuotaExhausted" },
  // public code of clients
  { statuses: [400, 401, 403], code: "invalid_api_key", outcome: "Rejected" },
  // waylaidwanderer/node-chatgpt-api#34
  { statuses: [500, 503], code: "server_error", outcome: "UpstreamFailed" },
  // home-assistant/core#160414
  { statuses: [400, 401, 402, 403, 429], code: "quota_exceeded", outcome: "QuotaExhausted" },
  // https://platform.claude.com/docs/en/api/errors
  { statuses: [400, 402, 403, 429], code: "billing_error", outcome: "QuotaExhausted" },
  // can1357/oh-my-pi#449
  { statuses: [400, 401, 403], code: "api_key_invalid", outcome: "Rejected" },
  // anthropics/claude-code#59278
  { statuses: [400, 401, 403], code: "authentication_error", outcome: "Rejected" },
  // assafelovic/gpt-researcher#985: too many tokens for this key; another may have a larger limit
  { statuses: [413], code: "rate_limit_exceeded", outcome: "NotServed" }
]
