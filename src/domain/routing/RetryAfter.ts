const second = 1000
const minute = 60 * second
const hour = 60 * minute

/** Numbers from here on are times in seconds since 1970, and from 1,000 times that on in milliseconds. */
const firstEpoch = 1e9

/** The three forms of a date in HTTP (RFC 9110, 5.6.7). */
const dateForms = [
  /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?<day>\d\d) (?<month>\w{3}) (?<year>\d{4}) (?<time>[\d:]{8}) GMT$/,
  /^(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?<day>\d\d)-(?<month>\w{3})-(?<year>\d\d) (?<time>[\d:]{8}) GMT$/,
  /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?<month>\w{3}) (?<day>[ \d]\d) (?<time>[\d:]{8}) (?<year>\d{4})$/
]

/** Reads a two-digit year as this century's, unless that is more than 50 years ahead. */
const yearOf = (digits: string, now: number): number => {
  if (digits.length > 2) return Number(digits)
  const thisYear = new Date(now).getUTCFullYear()
  const year = thisYear - (thisYear % 100) + Number(digits)
  return year > thisYear + 50 ? year - 100 : year
}

/** Milliseconds since 1970; NaN unless the text is a date. */
const dateOf = (text: string, now: number): number => {
  const { day = "", month, time, year = "" } = dateForms.map((form) => form.exec(text)?.groups).find(Boolean) ?? {}
  const date = `${day.replace(" ", "0")} ${month} ${yearOf(year, now)} ${time} GMT`
  const at = Date.parse(date)
  // `Date.parse` turns 31 February into March.
  return new Date(at).toUTCString().endsWith(date) ? at : Number.NaN
}

/** A duration such as `26s`, `1m30.5s` or `120ms`, as Google writes it in bodies and Go programs write it in headers. */
const duration = /^(?=\d)(?:(?<h>\d+)h)?(?:(?<m>\d+)m(?!s))?(?:(?<s>\d+(?:\.\d+)?)s)?(?:(?<ms>\d+(?:\.\d+)?)ms)?$/

/** Milliseconds from `now` on; NaN unless the text is a number of seconds, a time or a duration. */
const waitOf = (text: string, now: number): number => {
  if (/^\d+(\.\d+)?$/.test(text)) {
    const number = Number(text)
    if (number >= firstEpoch * 1000) return number - now
    return number >= firstEpoch ? number * second - now : number * second
  }
  const parts = duration.exec(text)?.groups
  if (parts === undefined) return dateOf(text, now) - now
  const { h = "0", m = "0", ms = "0", s = "0" } = parts
  return Number(h) * hour + Number(m) * minute + Number(s) * second + Number(ms)
}

/** The comma between two values: that of a date follows a weekday. */
const doubled = /(?<=GMT|\d|s),\s*/

/**
 * Reads when an upstream wants the next request, as milliseconds from `now` on: a number of seconds, a time in seconds
 * or milliseconds since 1970, a date of HTTP or a duration. Of a doubled header, which clients join by commas, the
 * longest counts. Null if malformed, zero or in the past.
 */
export const retryAfterMillis = (value: string | number | null, now: number): number | null => {
  const text = String(value ?? "").trim()
  const waits = text.split(doubled).map((one) => waitOf(one, now))
  const longest = Math.ceil(Math.max(0, ...waits.filter(Number.isFinite)))
  return longest > 0 ? longest : null
}
