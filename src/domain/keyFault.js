/** The rule that a reference to a key, or a placeholder for one, breaks. */
const reference = "the form of a reference or placeholder such as os.environ/NAME or YOUR_API_KEY"

/** The rule that a line around a key breaks. */
const line = "the form of a line such as NAME=value or name: value"

/**
 * Forms of texts that surely are no bare key, and how an issue describes them. The first that matches counts.
 *
 * @type {ReadonlyArray<readonly [form: RegExp, fault: string]>}
 */
const nonKeyForms = [
  // Copied with the text around it.
  [/^[\s\p{Cc}\p{Cf}]|[\s\p{Cc}\p{Cf}]$/u, "white space, a control character or a format character at either end"],
  // The value of the header Authorization.
  [/^([a-z-]+: *)?(bearer|basic|token|key|api-?key)\s/i, "a scheme such as Bearer before it"],
  // A line of an environment file or a shell.
  [/^((export|setx?)\s+|\$env:)?[A-Z_][A-Z0-9_]+\s*=\s*[^=\s]/, line],
  // A parameter of a URL, an assignment, or a line of PowerShell.
  [/^["']?(export\s+|setx?\s+|\$env:)?[\w-]*(key|token|secret)["']?\s*=\s*[^=\s]/i, line],
  // A header, or a line of YAML or JSON. A key of two parts, such as ID:SECRET, has no such name before its colon.
  [/^["']?([\w-]*[-_])?(api|(secret)?access)?(key|token|secret|authorization)["']?\s*:\s*\S/i, line],
  // A string of a program, or of JSON, perhaps with the comma after it.
  [/^(["'`]).*\1[,;]?$|^[\u201c\u2018].*[\u201d\u2019][,;]?$/s, "quotes around it"],
  // A key as byok and the consoles of providers show it.
  [/^[!-~]{0,24}(\.{3}|\u2026)[!-~]{0,12}$|\*{3}|[\u2022\u25cf\u2219\u00b7]{3}/, "the form of a label or a mask"],
  // A reference in the configuration of LiteLLM or Bifrost, or in JavaScript.
  [/^(os\.environ\/|process\.env\.|env\.)\w+$/, reference],
  // A variable or a template of a shell, Windows, Compose, GitHub or Helm; a placeholder in angle brackets.
  [/^\$\{.*\}$|^\$?\{\{.*\}\}$|^%\w+%$|^<[^<>]*>$|^\$?[A-Z][A-Z0-9_]*_(KEY|TOKEN|SECRET)$/, reference],
  // A placeholder of a manual.
  [/^\W?([a-z]{1,8}[-_]){0,3}your[a-z_ -]{0,30}(key|token|secret)([-_ ]here)?\W?$/i, reference],
  // What LibreChat stores for a key that each user enters, and what programs print for a missing or hidden one.
  [/^(user_provided|null|undefined|None|\[object Object\]|redacted)$|[[<(]redacted[\])>]/i, reference],
  // The address of an upstream or of a console.
  [/^[a-z][a-z0-9+.-]*:\/\//i, "the form of a URL"],
  // Several keys, a file that is not JSON, or invisible characters from a web page. No header may have most of them.
  [/[\p{Cc}\p{Cf}]/u, "a line break or another control or format character inside, unless the whole key is valid JSON"]
]

/** The secrets in a JSON key, by the names that issues give them. */
const secretMembers = { api_key: "an api_key", secretAccessKey: "a secretAccessKey", sessionToken: "a sessionToken" }

/** @param {string} text @returns {unknown} */
const parsed = (text) => {
  try {
    return /^\s*[{[]/.test(text) ? JSON.parse(text) : undefined
  } catch {
    return undefined
  }
}

/**
 * The rule that a raw key breaks, if its form shows that it is no bare key (D45); undefined for any other. Judges the
 * secrets of a JSON key, or of each element of a list. Plain JavaScript, because the owner's page loads this file
 * unchanged.
 *
 * @param {string} key
 */
export const keyFaultIn = (key) => {
  const json = parsed(key)
  const secrets =
    json === undefined
      ? [["", key]]
      : [json]
          .flat()
          .flatMap((element) =>
            Object.entries(secretMembers).map(([member, name]) => [
              `${name} with `,
              Reflect.get(Object(element), member)
            ])
          )
  for (const [name, secret] of secrets) {
    const fault = typeof secret === "string" && nonKeyForms.find(([form]) => form.test(secret))?.[1]
    if (fault) return `must not have ${name}${fault}`
  }
  return undefined
}
