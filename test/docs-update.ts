/** `npm run docs` writes into README.md and docs/ what their commands and files say now. */
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { updatePage } from './docs.ts'
import { allPages } from './markdown.ts'

for (const page of allPages()) {
  const text = await updatePage(page)
  if (text === page.text) continue
  writeFileSync(join(dirname(import.meta.dirname), page.path), text)
  console.log(`updated ${page.path}`)
}
