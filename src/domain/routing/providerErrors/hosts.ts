import type { ErrorRules } from "./ErrorRule.ts"

/** What the errors of companies that serve the models of others mean, each with its source. The first that matches counts. */
export const hosts = {
  "amazon-bedrock": [
    // https://www.developersdigest.tech/errors/api/bedrock
    { statuses: [403], code: "invalidclienttokenid", outcome: "Rejected" },
    // https://www.developersdigest.tech/errors/api/bedrock
    { statuses: [400], code: "requestexpired", outcome: "UpstreamFailed" },
    // https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html
    { statuses: [400], code: "incompletesignature", outcome: "UpstreamFailed" },
    // https://www.developersdigest.tech/errors/api/bedrock
    { statuses: [400], code: "servicequotaexceededexception", outcome: "RateLimited" },
    // anthropics/claude-code#28032
    { statuses: [403], code: "expiredtokenexception", outcome: "Rejected" },
    // langchain-ai/langchain#19677
    { statuses: [403], code: "unrecognizedclientexception", outcome: "Rejected" },
    // ministryofjustice/modernisation-platform-environments#18323
    {
      statuses: [403],
      message: "Model access is denied due to IAM user or service role is not authorized",
      outcome: "NotServed"
    },
    // gaiin-platform/amplify-genai-backend#62
    {
      statuses: [403],
      message: "You don't have access to the model with the specified model ID",
      outcome: "NotServed"
    },
    // Aider-AI/aider#1986
    { statuses: [403], message: "The security token included in the request is invalid", outcome: "Rejected" },
    // anthropics/claude-code#28032
    { statuses: [403], message: "The security token included in the request is expired", outcome: "Rejected" },
    // smithy545/aws-apps-scripts#12 (another AWS service, the same form)
    { statuses: [403], message: "The request signature we calculated does not match", outcome: "Rejected" },
    // NickWaterton/Roomba980-Python#118 (another AWS service, the same front)
    { statuses: [403], message: "Signature not yet current:", outcome: "UpstreamFailed" },
    // danny-avila/LibreChat#4570
    { statuses: [400], message: "Invocation of model ID", outcome: "NotServed" },
    // anthropics/anthropic-sdk-go#122
    { statuses: [403], message: "Signature expired:", outcome: "UpstreamFailed" }
  ],
  azure: [
    // Azure-Samples/azure-sql-db-chatbot#3
    { statuses: [403], message: "Access denied due to Virtual Network/Firewall rules", outcome: "UpstreamFailed" },
    // continuedev/continue#12547
    { statuses: [403], message: "A Virtual Network is configured for this resource", outcome: "UpstreamFailed" }
  ],
  cerebras: [
    // public code of clients
    { statuses: [403], outcome: "UpstreamFailed" }
  ],
  chutes: [
    // public code of clients
    { statuses: [429], message: "Infrastructure is at maximum capacity", outcome: "UpstreamFailed" }
  ],
  cloudflare: [
    // diegosouzapw/OmniRoute#6980
    { statuses: [429], message: "you have used up your daily free allocation", outcome: "QuotaExhausted" },
    // anomalyco/opencode#18552
    { statuses: [404], message: "Could not route to", outcome: "Rejected" },
    // anomalyco/opencode#32051
    { statuses: [401, 403], code: "10000", outcome: "Rejected" }
  ],
  coreweave: [
    // https://docs.coreweave.com/support/inference/tags/authentication-access
    { statuses: [403], message: "The inference gateway is not enabled for your organization", outcome: "Rejected" },
    // https://docs.coreweave.com/support/inference/tags/authentication-access
    { statuses: [403], message: "Country, region, or territory not supported", outcome: "UpstreamFailed" }
  ],
  databricks: [
    // databricks-demos/dbdemos#218
    { statuses: [403], code: "permission_denied", outcome: "NotServed" }
  ],
  deepinfra: [
    // truefoundry/models#862
    { statuses: [429], message: "Model busy, retry later", outcome: "UpstreamFailed" },
    // XInTheDark/raycast-g4f#179
    { statuses: [403], message: "Not authenticated", outcome: "UpstreamFailed" }
  ],
  elevenlabs: [
    // https://help.elevenlabs.io/hc/en-us/articles/19571824571921-API-Error-Code-429
    { statuses: [429], code: "system_busy", outcome: "UpstreamFailed" },
    // danielmiessler/LifeOS#667
    { statuses: [401], code: "missing_permissions", outcome: "NotServed" }
  ],
  fireworks: [
    // pollinations/pollinations#12136
    { statuses: [412], code: "precondition_failed", outcome: "QuotaExhausted" },
    // https://docs.fireworks.ai/guides/inference-error-codes
    { statuses: [403], outcome: "Rejected" }
  ],
  groq: [
    // crewAIInc/crewAI#783
    { statuses: [400], code: "organization_restricted", outcome: "Rejected" },
    // orbi-build/orbi#561
    { statuses: [403], code: "model_permission_blocked_org", outcome: "NotServed" },
    // public code of clients
    { statuses: [400], code: "blocked_api_access", outcome: "QuotaExhausted" },
    // public code of clients
    { statuses: [400], code: "model_decommissioned", outcome: "NotServed" },
    // https://www.developersdigest.tech/errors/api/groq-api/424-failed-dependency
    { statuses: [424], outcome: "RequestRefused" }
  ],
  novita: [
    // https://novita.ai/docs/ja/guides/error.md
    { statuses: [403], code: "model_access_denied", outcome: "NotServed" },
    // public code of clients
    { statuses: [403], code: "not_enough_balance", outcome: "QuotaExhausted" }
  ],
  nvidia: [
    // Alishahryar1/free-claude-code#1242
    { statuses: [403], outcome: "Rejected" }
  ],
  ollama: [
    // continuedev/continue#13195
    { statuses: [403], message: "your subscription payment is past due", outcome: "QuotaExhausted" }
  ],
  siliconflow: [
    // https://docs.siliconflow.cn/en/faqs/error-code
    { statuses: [403], code: "30003", outcome: "NotServed" },
    // ErlichLiu/DeepClaude#111
    { statuses: [400], code: "20012", outcome: "NotServed" },
    // SiliconFlow's older list of codes
    { statuses: [403], code: "30002", outcome: "Rejected" },
    // SiliconFlow's older list of codes
    { statuses: [403], code: "30005", outcome: "NotServed" },
    // public code of clients
    { statuses: [402, 403], code: "30001", outcome: "QuotaExhausted" }
  ],
  together: [
    // public code of clients
    { statuses: [400], code: "model_not_available", outcome: "NotServed" },
    // https://support.together.ai/articles/1067567273-error-codes-explanations-and-solutions
    { statuses: [403], outcome: "RequestRefused" }
  ],
  venice: [
    // https://docs.venice.ai/zh/api-reference/error-codes
    { statuses: [401], message: "This model is only available to Pro users", outcome: "NotServed" }
  ]
} as const satisfies ErrorRules
