/** What must not be seen: the values of variables with such names, wherever they are. */

const SECRET = new RegExp(
  '(keys?|pass|_pwd|_pat)\\d*(_|$)|secret|token|jwt|passw|passphrase|credential|' +
    'cookie|(^|_)auth(_(?!sock)|$)',
  'i',
)

/** Whether a variable's name says that its value is not for logs, screens or tools. */
export const isSecretName = (name: string) => SECRET.test(name)

let secrets = new Set<string>()

/** From now on these values are replaced wherever they would be shown or stored. */
export function hide(values: string[]): void {
  const longestFirst = [...secrets, ...values].sort((a, b) => b.length - a.length)
  secrets = new Set(longestFirst)
}

/** Text without the values given to `hide`. */
export function redact(text: string): string {
  let out = text
  for (const secret of secrets) out = out.replaceAll(secret, '[redacted]')
  return out
}
