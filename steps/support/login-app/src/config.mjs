/** How long a session lasts without being used. */
export const SESSION_MINUTES = 30

/** The shortest password that a new user may choose. */
export const PASSWORD_LENGTH = 8
