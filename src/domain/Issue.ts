import { Schema, type SchemaIssue } from "effect"

/** Which field was wrong and what is allowed there (D7). The message is one of our sentences and never holds a value. */
export const Issue = Schema.Struct({
  path: Schema.Array(Schema.Union([Schema.String, Schema.Finite])).annotate({
    description:
      "Where in the request body: member names and array positions, empty for the body as a whole; or the name of a header.",
    examples: [["allowed_models", 3]]
  }),
  message: Schema.String.annotate({ examples: ["must be a string"] })
})
export type Issue = typeof Issue.Type

/** Turns a failed decoding into issues, using the `message` annotations of our schemas and checks only (D7). */
export const issuesOf = (
  issue: SchemaIssue.Issue,
  path: Issue["path"] = [],
  filterMessage?: string
): ReadonlyArray<Issue> => {
  const one = (message: string) => [{ path, message: filterMessage ?? message }]
  switch (issue._tag) {
    case "Pointer": {
      const segments = issue.path.map((segment) => (typeof segment === "number" ? segment : String(segment)))
      return issuesOf(issue.issue, [...path, ...segments], filterMessage)
    }
    case "Encoding":
      return issuesOf(issue.issue, path, filterMessage)
    case "Filter":
      return issuesOf(issue.issue, path, filterMessage ?? issue.filter.annotations?.message)
    case "MissingKey":
      return one("is required")
    case "InvalidValue":
      return one(path.length === 0 ? "must be valid JSON" : (issue.annotations?.message ?? "is not allowed"))
    case "Composite":
    case "AnyOf":
      if (issue.issues.length > 0) return issue.issues.flatMap((inner) => issuesOf(inner, path, filterMessage))
  }
  const said = "ast" in issue ? issue.ast.annotations?.["message"] : undefined
  return one(typeof said === "string" ? said : path.length === 0 ? "must be a JSON object" : "has the wrong type")
}
