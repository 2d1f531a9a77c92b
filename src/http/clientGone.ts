/** The status, on no wire, of a request whose client left before it was answered: nginx has it too. */
export const clientGone = 499
