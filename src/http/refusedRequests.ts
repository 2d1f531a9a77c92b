const statuses = new WeakMap<object, number>()

/** Notes that a connection was refused while this request of Node's was on it without an answer. */
export const noteRefusal = (request: object, status: number): void => void statuses.set(request, status)

/** The status of the refusal that the client of a request got instead of its answer. */
export const refusalStatusOf = (request: object): number | undefined => statuses.get(request)
