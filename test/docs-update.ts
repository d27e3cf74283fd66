/** `npm run docs` writes into README.md and docs/ what their commands and files say now. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { updatePage } from './docs.ts'
import { allPages, ROOT } from './markdown.ts'

for (const page of allPages()) {
  const text = await updatePage(page)
  if (text === page.text) continue
  writeFileSync(join(ROOT, page.path), text)
  console.log(`updated ${page.path}`)
}
