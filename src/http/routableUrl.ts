const isEncoded = (path: string) => {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/**
 * Makes the router take every path literally: one that is not percent-encoded UTF-8 stands for itself, `;` starts no
 * query, `#` no fragment, and nothing follows a last slash. Otherwise a request could bypass authentication or reach
 * another resource (D5, D10).
 */
export const routableUrl = (url: string): string => {
  const [path = ""] = /^[^?]*/.exec(url) ?? []
  // The router reads `*` and what is no URL as `/`, and a path that ends in a slash as one with an empty id.
  if (!path.startsWith("/") || (path !== "/" && path.endsWith("/"))) return `//${url}`
  if (!/[%;#]/.test(path)) return url
  const encoded = isEncoded(path) ? path : path.replaceAll("%", "%25")
  return encoded.replaceAll(";", "%3B").replaceAll("#", "%23") + url.slice(path.length)
}
