import type { ErrorRules } from "./ErrorRule.ts"

/** What the errors of companies that make models mean, each with its source. The first that matches counts. */
export const makers = {
  alibaba: [
    // tencentmusic/supersonic#1572
    { statuses: [400], code: "arrearage", outcome: "QuotaExhausted" },
    // public code of clients
    { statuses: [403], code: "allocationquota.freetieronly", outcome: "NotServed" },
    // public code of clients
    { statuses: [403], code: "accessdenied.unpurchased", outcome: "NotServed" },
    // public code of clients
    { statuses: [403], code: "model.accessdenied", outcome: "NotServed" },
    // https://help.aliyun.com/en/model-studio/rate-limit and https://help.aliyun.com/en/model-studio/error-code-start
    { statuses: [429], code: "insufficient_quota", outcome: "RateLimited" },
    // https://help.aliyun.com/en/model-studio/error-code-start
    { statuses: [429], code: "throttling.ratequota", outcome: "RateLimited" },
    // https://help.aliyun.com/en/model-studio/error-code-start
    { statuses: [429], code: "throttling.allocationquota", outcome: "RateLimited" }
  ],
  anthropic: [
    // https://www.developersdigest.tech/errors/api/anthropic-api/400-spend-limit-reached
    {
      statuses: [400],
      message: "You have reached your specified workspace API usage limits",
      outcome: "QuotaExhausted"
    },
    // anthropics/claude-code#64982
    { statuses: [429], message: "Usage credits are required for long context requests", outcome: "NotServed" },
    // anthropics/claude-code#33514
    { statuses: [429], message: "Extra usage is required for long context requests", outcome: "NotServed" },
    // anthropics/claude-code#38035
    { statuses: [400], message: "You have reached your specified API usage limits", outcome: "QuotaExhausted" },
    // anthropics/claude-code#45069
    { statuses: [400], message: "Third-party apps now draw from your extra usage", outcome: "QuotaExhausted" },
    // can1357/oh-my-pi#38
    { statuses: [403], message: "OAuth token does not meet scope requirement", outcome: "NotServed" },
    // anthropics/claude-code#58367
    { statuses: [400], message: "Output blocked by content filtering policy", outcome: "RequestRefused" },
    // anthropics/claude-code#72457
    { statuses: [400], message: "This organization has been disabled", outcome: "Rejected" },
    // anthropics/claude-code#66314
    { statuses: [400], message: "Your credit balance is too low", outcome: "QuotaExhausted" },
    // theredsix/cerebellum#4
    { statuses: [403], message: "Request not allowed", outcome: "UpstreamFailed" },
    // https://www.developersdigest.tech/errors/api/anthropic-api/429-enforced-spend-limit-reached
    { statuses: [429], code: "enforced_spend_limit_reached", outcome: "QuotaExhausted" }
  ],
  byteplus: [
    // https://volcengine.com/docs/82379/1299023
    { statuses: [403], code: "accountoverdueerror", outcome: "QuotaExhausted" },
    // https://volcengine.com/docs/82379/1299023
    { statuses: [403], code: "accessdenied", outcome: "NotServed" },
    // volcengine/MineContext#328
    { statuses: [429], code: "setlimitexceeded", outcome: "NotServed" },
    // https://volcengine.com/docs/82379/1299023
    { statuses: [400], code: "invalidendpoint.closedendpoint", outcome: "NotServed" }
  ],
  cohere: [
    // cohere-ai/cohere-developer-experience#189
    { statuses: [498], outcome: "RequestRefused" }
  ],
  "google-ai-studio": [
    // lbjlaq/Antigravity-Manager#1653
    { statuses: [403], message: "Gemini has been disabled in this account for violation", outcome: "Rejected" },
    // https://ai.google.dev/gemini-api/docs/generate-content/api-errors
    { statuses: [400], message: "Gemini API free tier is not available in your country", outcome: "NotServed" },
    // public code of clients
    { statuses: [429], message: "Your project has exceeded its monthly spending cap", outcome: "QuotaExhausted" },
    // google-gemini/gemini-cli#24641
    { statuses: [400], message: "User location is not supported for the API use", outcome: "UpstreamFailed" },
    // dyad-sh/dyad#3626
    { statuses: [429], message: "Your prepayment credits are depleted", outcome: "QuotaExhausted" },
    // continuedev/continue#11541
    { statuses: [403], message: "Your API key was reported as leaked", outcome: "Rejected" },
    // public code of clients
    { statuses: [403], message: "Your project has been denied access", outcome: "Rejected" },
    // public code of clients
    { statuses: [403], message: "Lightning dunning decision is deny", outcome: "QuotaExhausted" },
    // google/generative-ai-docs#356
    { statuses: [403], code: "consumer_suspended", outcome: "Rejected" },
    // continuedev/continue#12781
    { statuses: [403], code: "api_key_service_blocked", outcome: "Rejected" },
    // mhawksey/GeminiApp#10
    { statuses: [403], code: "api_key_http_referrer_blocked", outcome: "Rejected" },
    // google-gemini/deprecated-generative-ai-python#10
    { statuses: [403], code: "service_disabled", outcome: "Rejected" }
  ],
  "google-vertex": [
    // erebusnz/gapi-google-analytics-php-interface#147
    { statuses: [400], message: "Invalid JWT: Token must be a short-lived token", outcome: "UpstreamFailed" },
    // googleapis/google-api-nodejs-client#2808
    { statuses: [400], message: "invalid_grant", outcome: "Rejected" },
    // rhel-lightspeed/linux-mcp-server#450
    { statuses: [403], code: "iam_permission_denied", outcome: "NotServed" },
    // public code of clients
    { statuses: [403], code: "billing_disabled", outcome: "QuotaExhausted" }
  ],
  minimax: [
    // MiniMax-AI/MiniMax-01#37
    { statuses: [], code: "2049", outcome: "Rejected" },
    // public code of clients
    { statuses: [], code: "1002", outcome: "RateLimited" },
    // public code of clients
    { statuses: [], code: "1027", outcome: "RequestRefused" },
    // public code of clients
    { statuses: [], code: "2013", outcome: "RequestRefused" },
    // public code of clients
    { statuses: [500], code: "2061", outcome: "NotServed" },
    // modelscope/modelscope#1691
    { statuses: [402, 429], code: "insufficient_balance_error", outcome: "QuotaExhausted" },
    // MiniMax-AI/MiniMax-M2#62
    { statuses: [500], message: "insufficient balance (1008)", outcome: "QuotaExhausted" }
  ],
  mistral: [
    // public code of clients
    { statuses: [429], code: "3810", outcome: "UpstreamFailed" },
    // mistralai/mistral-vibe#617
    { statuses: [400], code: "invalid_model", outcome: "NotServed" }
  ],
  moonshotai: [
    // NanmiCoder/cc-haha#1208
    { statuses: [403], message: "You've reached your usage limit for this billing cycle", outcome: "QuotaExhausted" },
    // MoonshotAI/Kimi-K2#5
    { statuses: [403, 429], code: "exceeded_current_quota_error", outcome: "QuotaExhausted" },
    // clacky-ai/openclacky#192
    { statuses: [403], code: "access_terminated_error", outcome: "Rejected" },
    // MoonshotAI/MoonshotAI-Cookbook#16
    { statuses: [429], code: "engine_overloaded_error", outcome: "UpstreamFailed" }
  ],
  openai: [
    // bytedance/trae-agent#162
    { statuses: [401], message: "You have insufficient permissions for this operation", outcome: "NotServed" },
    // public code of clients
    { statuses: [403], message: "Your organization must be verified to use the model", outcome: "NotServed" },
    // continuedev/continue#8209
    { statuses: [400], message: "Your organization must be verified to", outcome: "NotServed" },
    // DrShushen/climb#13
    { statuses: [429], message: "Request too large for", outcome: "NotServed" }
  ],
  upstage: [
    // public code of clients
    { statuses: [401, 403], message: "API key suspended due to insufficient credit", outcome: "QuotaExhausted" }
  ],
  voyageai: [
    // https://docs.voyageai.com/docs/error-codes
    { statuses: [403], outcome: "UpstreamFailed" }
  ],
  xai: [
    // public code of clients
    { statuses: [403], code: "personal-team-blocked:spending-limit", outcome: "QuotaExhausted" },
    // Wei-Shaw/sub2api#5359
    { statuses: [403], message: "Content violates usage guidelines", outcome: "RequestRefused" },
    // Wei-Shaw/sub2api#4069
    { statuses: [403], message: "You have run out of credits", outcome: "QuotaExhausted" },
    // hotovo/aider-desk#653
    { statuses: [400], message: "Incorrect API key provided", outcome: "Rejected" },
    // cline/cline#4826
    { statuses: [429], message: "Too many tokens for team", outcome: "RateLimited" },
    // griptape-ai/griptape-nodes-engine#1079
    { statuses: [403], message: "Your newly created team", outcome: "QuotaExhausted" },
    // continuedev/continue#10373
    { statuses: [403, 429], message: "Your team", outcome: "QuotaExhausted" },
    // public code of clients
    { statuses: [403], code: "unauthenticated:bad-credentials", outcome: "Rejected" },
    // public code of clients
    { statuses: [403], code: "unauthorized:blocked-user", outcome: "Rejected" }
  ],
  xiaomi: [
    // XiaomiMiMo/MiMo#99
    { statuses: [402], message: "Upstream request failed: Insufficient account funds", outcome: "QuotaExhausted" },
    // XiaomiMiMo/MiMo-Code#1126
    { statuses: [403], code: "illegal_access", outcome: "UpstreamFailed" }
  ],
  "z-ai": [
    // duolahypercho/codex-router#246
    { statuses: [400], message: "modelCode: does not exist", outcome: "NotServed" },
    // public code of clients
    { statuses: [429], message: "[1309]", outcome: "QuotaExhausted" },
    // zai-org/GLM-5#148
    { statuses: [429], code: "1113", outcome: "QuotaExhausted" },
    // public code of clients
    { statuses: [429], code: "1305", outcome: "UpstreamFailed" },
    // public code of clients
    { statuses: [400], code: "1211", outcome: "NotServed" },
    // public code of clients
    { statuses: [429], code: "1309", outcome: "QuotaExhausted" }
  ]
} as const satisfies ErrorRules
