/** Reads `key=value,key=value` with percent-encoded values, as OpenTelemetry writes headers and attributes. */
export const keyValuePairs = (text: string): Readonly<Record<string, string>> | undefined => {
  const pairs = text
    .split(",")
    .map((pair) => pair.trim())
    .filter((pair) => pair !== "")
    .map((pair) => /^([^=\s]+)\s*=\s*(.*)$/.exec(pair))
  try {
    return Object.fromEntries(
      pairs.map((pair) => [decodeURIComponent(pair?.[1] ?? "%"), decodeURIComponent(pair?.[2] ?? "")])
    )
  } catch {
    return undefined
  }
}
